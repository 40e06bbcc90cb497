#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Stacks unwound in signal handlers, at random moments of the workloads: each legal or marked.

usage: inprocess.py MODULE LIBRARY PROGRAMS [--samples N] [--seconds S] [NAME:jit|NAME:nojit ...]
  MODULE     inprocess.so, LIBRARY the folder of libmoonspy.so, PROGRAMS that of the C workloads
  --samples  goes on until there are so many [each workload once]
  NAME       a Lua workload; or embed, vms-nested, vms-turns, vms-threads, vms-passed, library [all]
exit status: 0 all legal, 1 not, 77 no luajit here
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
WORKLOADS = os.path.join(HERE, "..", "workloads")
CHECK = os.path.join(HERE, "..", "e2e", "check.py")
LUAJIT = os.environ.get("LUAJIT", "luajit")
LIBRARY_LEAST_WHOLE = 90  # some samples pass before a library just loaded is known
BUCKETS = 64
SHOWN = 11  # of them: up to 1 ms
SUMS = 6  # of the figures are sums, the others maxima


def all_names(programs):
    names = [os.path.basename(path)[:-6] for path in sorted(glob.glob(os.path.join(WORKLOADS, "*.graph")))
             if "include luajit.graph" in open(path).read()]
    names = [name for name in names if os.path.exists(os.path.join(WORKLOADS, name + ".lua"))]
    if os.path.exists(os.path.join(programs, "vms")):
        names += ["embed", "vms-nested", "vms-turns", "vms-threads", "vms-passed"]
    return ["%s:%s" % (name, mode) for name in names for mode in ("nojit", "jit")]


def command(name, mode, seconds, programs):
    if name == "embed":
        return [os.path.join(programs, "embed"), seconds, mode]
    if name == "library":
        found = re.search(r"libluajit-5\.1\.so\.2 .*=> (.*)", subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout)
        return [os.path.join(programs, "library"), seconds, found.group(1) if found else ""]
    if name.startswith("vms-"):
        return [os.path.join(programs, "vms"), seconds, name[4:], mode]
    return [LUAJIT, os.path.join(WORKLOADS, name + ".lua"), seconds, mode]


def run(options, what, work, sums):
    name, mode = what.split(":")
    out = os.path.join(work, "profile.json")
    graph = os.path.join(WORKLOADS, name + ".graph")
    if not os.path.exists(graph):
        graph = os.path.join(WORKLOADS, "vms.graph")
    env = dict(os.environ, LD_PRELOAD=options.module, LD_LIBRARY_PATH=options.library, INPROCESS_OUT=out)
    done = subprocess.run(command(name, mode, str(options.seconds), options.programs), env=env, timeout=300,
                          stdout=subprocess.DEVNULL)
    if done.returncode:
        print("FAULT %s ended with %d" % (what, done.returncode))
        return False
    arguments = ["--graph", graph, "--quiet", "--inlined-hidden", "--figures", "%s %s" % (name, mode),
                 "--min-samples", str(int(100 * options.seconds))]
    # These timers go by the clock on the wall, and a handler waits where a stack is new: what is asked
    # for is that stacks are legal, not how often each comes. Threads that wait have no Lua frames.
    arguments += ["--draws", "1", "--max-native", "95" if name == "library" or name.startswith("vms-") else "6"]
    arguments += ["--min-whole", str(LIBRARY_LEAST_WHOLE if name == "library" else 99.9)]
    checked = subprocess.run([sys.executable, CHECK, out] + arguments)
    with open(out + ".times") as file:
        figures = [int(word) for word in file.readline().split()]
        lines = file.read().splitlines()
    buckets = [int(line) for line in lines[:BUCKETS]]
    for line in lines[BUCKETS:]:
        print("slow, %s: %s" % (what, line), flush=True)
    for i, value in enumerate(figures):
        sums["figures"][i] = max(sums["figures"][i], value) if i >= SUMS else sums["figures"][i] + value
    for i, value in enumerate(buckets):
        sums["buckets"][i] += value
    if figures[1] or figures[2]:
        print("FAULT %s: %d found no slot, %d could not be named" % (what, figures[1], figures[2]))
    return checked.returncode == 0 and not figures[1] and not figures[2]


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    for name in ("module", "library", "programs"):
        parser.add_argument(name)
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    options.module = os.path.abspath(options.module)
    if not shutil.which(LUAJIT):
        print("SKIP: no " + LUAJIT)
        return 77
    names = options.names or all_names(options.programs)
    sums = {"figures": [0] * 9, "buckets": [0] * BUCKETS}
    good = True
    with tempfile.TemporaryDirectory() as work:
        while True:
            for what in names:
                good = run(options, what, work, sums) and good
            if sums["figures"][0] >= options.samples:
                break
    samples, _, _, slow, spins_slow, spins_ns, longest, reads, longest_spin = sums["figures"]
    total = sum(sums["buckets"]) or 1
    print("%d stacks in handlers; CPU time of one:" % samples, end="")
    below = 0
    for i in range(SHOWN):
        below += sums["buckets"][i]
        if sums["buckets"][i]:
            print(" %.3f %% < %d us" % (100.0 * below / total, 1 << i), end=",")
    print(" longest %d us, %d above 1 ms; at most %d reads" % (longest // 1000, slow, reads))
    print("as many times plain arithmetic, for comparison: %.1f us each, longest %d us, %d above 1 ms" % (
        spins_ns / 1000 / total, longest_spin // 1000, spins_slow))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
