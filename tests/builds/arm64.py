# SPDX-License-Identifier: MIT
"""Builds for arm64: run by qemu's user mode, stepped there, and looked at in core files."""
import glob
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time

import get
from get import Missing

# One of them is in every stack of the workloads.
FUNCTIONS = re.compile(r"main chunk|worker")
READY = 'print("ready") io.flush()'
# Seconds; emulated on a busy machine.
PATIENCE = 60
# CPU time before it is stepped: fibers have begun by then, where nothing says that they have no caller.
WAIT_MS = 2000


def sysroot():
    return get.run([os.path.join(get.ROOT, "scripts/sysroot"), "bookworm/arm64"],
                   env=dict(os.environ, MOONSPY_CACHE=get.CACHE)).splitlines()[-1]


def fiber(row, tree):
    """The program with fibers, with the tree's LuaJIT linked in."""
    cross, binary = row.row["cross"], os.path.join(row.work, "fiber")
    get.run([cross + "gcc", "-O2", "-static", *shlex.split(row.row["fiber"]), "-I", os.path.join(tree, "src"), "-o", binary,
             os.path.join(get.HERE, "fiber.c"), os.path.join(tree, "src/libluajit.a"), "-lm", "-ldl"])
    return binary


def program(row, name, mode):
    """What runs a workload there, without the emulator."""
    if name == "fiber":
        return [row.file, row.script("tarantool"), "1000000", mode]
    return [os.path.join(row.tree, row.row["run"][0]), "-e", READY, row.script(name), "1000000", mode]


def start(row, command, folder):
    """Runs until it says that it is ready, and a second longer."""
    out = os.path.join(row.work, "out")
    with open(out, "w", encoding="utf-8") as file:
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   start_new_session=True, preexec_fn=lambda: resource.setrlimit(
                                       resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)))
    row.started.append(process)
    for _ in range(PATIENCE * 10):
        with open(out, encoding="utf-8", errors="replace") as file:
            text = file.read()
        if text.startswith("ready") or process.poll() is not None:
            break
        time.sleep(0.1)
    time.sleep(1)
    if process.poll() is not None or not text.startswith("ready"):
        raise Missing("the program does not run: " + text[-200:].strip().replace("\n", " | "))
    return process


def core(row, name, mode):
    """A core file of it is whole, and has Lua functions."""
    folder = os.path.join(row.work, "cores")
    os.mkdir(folder)
    try:
        process = start(row, [*row.row["emulator"], "-L", row.sysroot, *program(row, name, mode)], folder)
        maps = os.path.join(folder, "maps")
        shutil.copy("/proc/%d/maps" % process.pid, maps)
        process.send_signal(signal.SIGSEGV)
        process.wait()
        found = glob.glob(os.path.join(folder, "qemu_*.core"))
        if len(found) != 1:
            raise Missing("qemu wrote no core file")
        whole = os.path.join(folder, "whole.core")
        get.run([sys.executable, os.path.join(get.ROOT, "tests/e2e/qemu_core.py"), found[0], maps, whole])
        done = subprocess.run([row.moonspy, "core", "-q", whole], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env=row.env, timeout=600)
        row.compared += 1
        if done.returncode or "[error" in done.stdout or not FUNCTIONS.search(done.stdout):
            row.fault("core of %s %s: %d, %s" % (name, mode, done.returncode, done.stdout.strip()[-1500:]))
        else:
            row.agreed += 1
    finally:
        shutil.rmtree(folder)


def steps(row, name, mode, count):
    """Steps it; returns whether a stack was not whole or illegal."""
    stacks = os.path.join(row.work, "stacks")
    done = subprocess.run([os.path.join(row.build, "tests/conformance/qemu-steps"), "-n", str(count), "-b", "300", "-w",
                           str(WAIT_MS), "-t", name + " " + mode, "-o", stacks, *row.row["emulator"], row.sysroot, *program(row, name, mode)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=dict(row.env, TMPDIR=row.work), timeout=1200)
    if done.returncode >= 2:
        row.fault("steps of %s %s: %s" % (name, mode, done.stdout.strip()[-500:]))
        return True
    legal = subprocess.run([sys.executable, os.path.join(get.ROOT, "tests/conformance/oracle_check.py"), stacks,
                            row.graph(name), mode], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode or legal.returncode:
        row.fault("steps of %s %s: %s" % (name, mode, (done.stdout + legal.stdout).strip()[-3000:]))
        return True
    return False


def look(row, count):
    """All there is to do with a build."""
    row.sysroot = sysroot()
    faults = total = 0
    for name in row.workloads():
        for mode in ["nojit", "jit"] if row.truth["jit"] else ["nojit"]:
            core(row, name, mode)
            if count:
                faults += steps(row, name, mode, count)
                total += count
    row.cells["proved"] = "yes" if row.agreed else "NO"
    row.cells["oracle"] = "%d in %d" % (faults, total) if total else "-"
