# SPDX-License-Identifier: MIT
"""Core files of a build: the same moment live and as gcore's core, and variables with the values they have."""
import json
import os
import shutil
import subprocess
import sys
import time

import get
from get import Missing

sys.path.insert(0, os.path.join(get.ROOT, "tests/e2e"))
import core_hosts  # noqa: E402  (found through the line above)

VALUES = os.path.join(get.ROOT, "tests/workloads/cores/values.lua")


def moonspy(row, verb, *arguments):
    done = subprocess.run([row.moonspy, verb, "-q", "-j", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, env=row.env, timeout=120)
    if done.returncode not in (0, 4):
        raise ValueError("%s ended with %d: %s" % (verb, done.returncode, done.stderr.strip()[-300:]))
    return done.stdout


def gcore(row, pid):
    prefix = os.path.join(row.work, "core")
    get.run(["gcore", "-o", prefix, str(pid)])
    return "%s.%d" % (prefix, pid)


def sysroot(row):
    """Debug files of this machine would name more than those of the row's root."""
    return ["--sysroot", row.root] if row.root and row.row["run"] else []


def put_back(row, pid):
    """A core has no text of a library that was deleted: it is put where it was. Returns what was put there."""
    with open("/proc/%d/maps" % pid, encoding="utf-8", errors="replace") as file:
        names = {line.split()[5] for line in file if line.rstrip().endswith(" (deleted)")}
    names = [name for name in names if name.startswith("/tmp/") and not row.row["run"]]
    for name in names:
        shutil.copy(row.file, name)
    return names


def agree(row, pid, name):
    """Whether a stopped process and its core are the same to moonspy."""
    if not core_hosts.stop(pid):
        return False
    core, back = None, put_back(row, pid)
    try:
        live = {k: core_hosts.seen(json.loads(moonspy(row, "dump", "-p", str(pid), *o))) for k, o in core_hosts.OPTIONS.items()}
        core = gcore(row, pid)
        for kind, options in core_hosts.OPTIONS.items():
            other = core_hosts.seen(json.loads(moonspy(row, "core", core, *sysroot(row), *options)))
            if other != live[kind]:
                row.fault("%s: %s live and of a core differ: %s" % (name, kind, core_hosts.difference(live[kind], other)[:1500]))
                return False
        return True
    except ValueError as error:
        row.fault("%s: %s" % (name, error))
        return False
    finally:
        core_hosts.go_on(pid)
        for name in [*back, *([core] if core else [])]:
            os.unlink(name)


def values(row):
    """What dump and core show of variables of all kinds, against the program's own debug library."""
    inside = "/w" if row.root else row.work
    folder = os.path.join(row.root, "w") if row.root else row.work
    truth = os.path.join(folder, "truth")
    shutil.copy(VALUES, os.path.join(folder, "core-values.lua"))
    if os.path.exists(truth):
        os.unlink(truth)
    command = row.command("core-values.lua", inside + "/truth")
    if not row.root:
        command = [part.replace(os.path.join(core_hosts.WORKLOADS, "core-values.lua"), VALUES) for part in command]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT,
                               start_new_session=True)
    row.started.append(process)
    for _ in range(400):
        if os.path.exists(truth) and "ready" in open(truth, encoding="latin-1").read():
            break
        if process.poll() is not None:
            raise Missing("values.lua does not run")
        time.sleep(0.05)
    seen = os.path.join(row.work, "values.json")
    core = gcore(row, process.pid)
    for verb, arguments in (("dump", ["-p", str(process.pid)]), ("core", [core, *sysroot(row)])):
        with open(seen, "w", encoding="utf-8") as file:
            file.write(moonspy(row, verb, "-llc", *arguments))
        done = subprocess.run([sys.executable, os.path.join(get.ROOT, "tests/e2e/core_values.py"), truth, seen],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            row.fault("values, %s: %s" % (verb, done.stdout.strip()[-1500:]))
    os.unlink(core)
    row.stop()
