#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs that profile themselves: each stack is legal or marked, and the handler is never long.

usage: workloads.py MOONSPY MODULES [--seconds S] [--interval MS] [--luajit PROGRAM] [--together] [NAME:jit|NAME:nojit ...]
  MODULES     folder of sysprof.so and misc.lua
  NAME        a Lua workload [all]
  --seconds   of CPU time, of each program [3]
  --together  all programs at once, for that many seconds of the clock
exit status: 0 all as asked, 1 not, 77 no luajit here
"""
import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
WORKLOADS = os.path.join(HERE, "..", "workloads")
CHECK = os.path.join(HERE, "..", "e2e", "check.py")
MOST_HANDLER_NS = 5000000  # of CPU time: no stall


def all_names():
    names = [os.path.basename(path)[:-6] for path in sorted(glob.glob(os.path.join(WORKLOADS, "*.graph")))
             if "include luajit.graph" in open(path).read()]
    names = [name for name in names if os.path.exists(os.path.join(WORKLOADS, name + ".lua"))]
    return ["%s:%s" % (name, mode) for name in names for mode in ("nojit", "jit")]


def environment(modules, work):
    link = os.path.join(work, "moonspy")
    if not os.path.islink(link):
        os.symlink(os.path.abspath(modules), link)
    return dict(os.environ, LUA_CPATH=work + "/?.so;;", LUA_PATH=work + "/?.lua;;")


def command(options, what):
    name, mode = what.split(":")
    return [os.path.join(WORKLOADS, name + ".lua"), str(options.seconds), mode]


def begin(options, what, work):
    start = 'assert(require("moonspy.sysprof").start{mode = "C", interval = %d, path = "%s/sysprof.bin"})' % (
        options.interval, work)
    return subprocess.Popen([options.luajit, "-e", start] + command(options, what), env=environment(options.modules, work),
                            stdout=subprocess.DEVNULL)


def own_fault(options, what, status):
    """Some LuaJITs do not survive some programs, profiled or not: 2.1.0-beta3 overflows of a stack in compiled code."""
    alone = subprocess.run([options.luajit] + command(options, what), stdout=subprocess.DEVNULL).returncode
    print("%s %s ended with %d, with %d without the profiler" % ("LEFT OUT" if alone == status else "FAULT", what, status, alone))
    return alone == status


def judge(options, what, work, status):
    if status:
        return own_fault(options, what, status)
    name, mode = what.split(":")
    out = os.path.join(work, "profile.json")
    subprocess.run([options.moonspy, "report", os.path.join(work, "sysprof.bin"), "--force", "-q", "-f", "json", "-o", out],
                   check=True)
    arguments = ["--graph", os.path.join(WORKLOADS, name + ".graph"), "--quiet", "--figures", what, "--min-samples",
                 str(int(50 * options.seconds)), "--min-whole", "99.5", "--max-native", "6"]
    arguments += ["--lacks", "jit.compiler|trace.exit|_.j."] if mode == "nojit" else ["--inlined-hidden"]
    good = subprocess.run([sys.executable, CHECK, out] + arguments).returncode == 0
    with open(out) as file:
        profile = json.load(file)
    longest = int(profile["meta"]["handler ns, most"])
    if profile["quality"]["lost"] or longest > MOST_HANDLER_NS:
        print("FAULT %s: %d samples lost, %d us in a handler" % (what, profile["quality"]["lost"], longest // 1000))
        good = False
    options.longest = max(options.longest, longest)
    options.samples += profile["quality"]["samples"]
    return good


def run(options, what, work):
    return judge(options, what, work, begin(options, what, work).wait())


def run_together(options, names, work):
    """The clock's seconds are shared out as CPU time: all end at about the same time."""
    options.seconds *= min(1, len(os.sched_getaffinity(0)) / len(names))
    folders = [os.path.join(work, name.replace(":", "-")) for name in names]
    for folder in folders:
        os.mkdir(folder)
    programs = [begin(options, name, folder) for name, folder in zip(names, folders)]
    return [judge(options, name, folder, program.wait()) for name, folder, program in zip(names, folders, programs)]


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("moonspy")
    parser.add_argument("modules")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--interval", type=int, default=1)
    parser.add_argument("--luajit", default=os.environ.get("LUAJIT", "luajit"))
    parser.add_argument("--together", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    options.longest = options.samples = 0
    if not shutil.which(options.luajit):
        print("SKIP: no " + options.luajit)
        return 77
    with tempfile.TemporaryDirectory() as work:
        names = options.names or all_names()
        results = run_together(options, names, work) if options.together else [run(options, name, work) for name in names]
    print("%d samples, at most %d us of CPU time in a handler" % (options.samples, options.longest // 1000))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
