#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The same moment seen three ways: a live process, gcore's core, the kernel's core.

    core_hosts.py [--rounds N] [--seed N] [--mode jit|nojit] MOONSPY LUAJIT WORKLOAD...

Each workload runs for a random time and is stopped by SIGSTOP wherever it is. Then it is dumped,
gcore writes a core, and SIGABRT, which hits before another instruction runs, makes the kernel write
one. The stacks of all three must be the same, byte for byte, and so must coroutines and values.
Ends with 0 if all agree, 1 if not, 77 if nothing could be compared.
"""
import argparse
import difflib
import glob
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

WORKLOADS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "workloads")
OPTIONS = {"stacks": [], "values": ["-c", "-ll"]}


def kernel_writes_files():
    with open("/proc/sys/kernel/core_pattern", encoding="ascii") as f:
        return not f.read().startswith("|")


def moonspy(program, verb, arguments):
    run = subprocess.run([program, verb, "-q", "-j", *arguments], capture_output=True, check=False)
    if run.returncode not in (0, 4):
        sys.exit(f"moonspy {verb} ended with {run.returncode}: {run.stderr.decode()}")
    return json.loads(run.stdout)


def seen(dump):
    """What has to agree: all but what only one of the hosts can know."""
    threads = [{"tid": t["tid"], "error": t["error"], "stack": t["stack"]} for t in dump["threads"]]
    threads.sort(key=lambda t: t["tid"])
    return json.dumps({"threads": threads, "vms": dump["vms"], "coroutines": dump["coroutines"]}, indent=1)


def state(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def stop(pid):
    """False: it ended before."""
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        return False
    for _ in range(1000):
        if state(pid) in "TZX":
            break
        time.sleep(0.01)
    return state(pid) == "T"


def go_on(pid):
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass


def difference(a, b):
    return "\n".join(list(difflib.unified_diff(a.splitlines(), b.splitlines(), lineterm="", n=6))[:60])


class Target:
    def __init__(self, command, folder):
        self.folder = folder
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                                        preexec_fn=lambda: resource.setrlimit(
                                            resource.RLIMIT_CORE,
                                            (resource.RLIM_INFINITY, resource.RLIM_INFINITY)))
        self.pid = self.process.pid

    def stop(self):
        return stop(self.pid)

    def gcore(self):
        prefix = os.path.join(self.folder, "gcore")
        subprocess.run(["gcore", "-o", prefix, str(self.pid)], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=True)
        return f"{prefix}.{self.pid}"

    def kernel_core(self):
        self.process.send_signal(signal.SIGABRT)
        self.process.send_signal(signal.SIGCONT)
        self.process.wait(30)
        found = [f for f in glob.glob(os.path.join(self.folder, "core*"))]
        return found[0] if found else None

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def compare(what, a, b):
    if a == b:
        return True
    print(f"DIFFERENT: {what}")
    print("    " + difference(a, b).replace("\n", "\n    "))
    return False


def one(args, name, command, delay):
    """How many comparisons were made, and how many failed."""
    folder = tempfile.mkdtemp(prefix="moonspy-hosts.")
    target = Target(command, folder)
    made = failed = 0
    try:
        time.sleep(delay)
        if not target.stop():
            return 0, 0
        live = {k: seen(moonspy(args.moonspy, "dump", ["-p", str(target.pid), *o]))
                for k, o in args.options.items()}
        cores = {"gcore": target.gcore() if shutil.which("gcore") else None}
        cores["kernel"] = target.kernel_core() if kernel_writes_files() else None
        for kind, core in cores.items():
            if not core:
                continue
            for k, o in args.options.items():
                other = seen(moonspy(args.moonspy, "core", [core, *o]))
                made += 1
                if not compare(f"{name}: {k}, live and {kind}", live[k], other):
                    failed += 1
                    if args.keep:
                        shutil.copy(core, os.path.join(args.keep, f"{os.path.basename(name)}.{kind}"))
    finally:
        target.end()
        shutil.rmtree(folder)
    return made, failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--mode", action="append", choices=["jit", "nojit"])
    parser.add_argument("--keep")
    parser.add_argument("moonspy")
    parser.add_argument("luajit")
    parser.add_argument("workload", nargs="+")
    args = parser.parse_args()
    args.options = OPTIONS
    seed = args.seed if args.seed is not None else random.randrange(1 << 30)
    rng = random.Random(seed)
    made = failed = 0
    for _ in range(args.rounds):
        for workload in args.workload:
            for mode in args.mode or ["jit", "nojit"]:
                command = [args.luajit, "-joff" if mode == "nojit" else "-jon", workload, "30"]
                if os.access(workload, os.X_OK) and not workload.endswith(".lua"):
                    command = [workload, "30"]
                m, f = one(args, f"{os.path.basename(workload)} ({mode})", command,
                           0.2 + rng.random() * 0.4)
                made += m
                failed += f
    print(f"hosts: {made} comparisons, {failed} different (seed {seed})")
    if not made:
        print("SKIP: nothing could be compared (gcore, or a core_pattern that is a file)")
        return 77
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
