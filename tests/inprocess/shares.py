#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The same seconds of a program seen from inside, by its own profiler, and from outside: shares of functions agree.

usage: shares.py MOONSPY MODULES [--seconds S] [--luajit PROGRAM] [NAME:jit|NAME:nojit ...]
exit status: 0 they do, 1 not, 77 cannot run here
"""
import argparse
import collections
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

from workloads import WORKLOADS, environment

LUA = ("lua", "jit", "fast", "cfunction")


def leaves(path):
    """Samples by the innermost frame that stands on a Lua stack."""
    with open(path) as file:
        profile = json.load(file)
    found = collections.Counter()
    for stack in profile["stacks"]:
        names = [frame["name"] for frame in stack["frames"] if frame["kind"] in LUA]
        if names:
            found[names[-1]] += stack["count"]
    return found


def distance(a, b):
    """Total variation, and what chance alone makes of it in three of a hundred thousand cases at most."""
    many_a, many_b = sum(a.values()), sum(b.values())
    names = set(a) | set(b)
    tv = sum(abs(a[name] / many_a - b[name] / many_b) for name in names) / 2
    share = [(a[name] + b[name]) / (many_a + many_b) for name in names]
    spread = sum(math.sqrt(p * (1 - p) * (1 / many_a + 1 / many_b)) for p in share)
    return tv, spread * math.sqrt(2 / math.pi) / 2 + 4 * math.sqrt(0.25 * (1 / many_a + 1 / many_b))


def run(options, what, work):
    name, mode = what.split(":")
    stream, inside, outside = (os.path.join(work, end) for end in ("sysprof.bin", "inside.json", "outside.json"))
    start = 'assert(require("moonspy.sysprof").start{mode = "C", interval = 1, path = "%s"})' % stream
    done = subprocess.run([options.moonspy, "record", "-q", "-r", "999", "--force", "-f", "json", "-o", outside, "--",
                           options.luajit, "-e", start, os.path.join(WORKLOADS, name + ".lua"), str(options.seconds), mode],
                          env=environment(options.modules, work), stdout=subprocess.DEVNULL)
    if done.returncode:
        print("FAULT %s ended with %d" % (what, done.returncode))
        return False
    subprocess.run([options.moonspy, "report", stream, "--force", "-q", "-f", "json", "-o", inside], check=True)
    a, b = leaves(inside), leaves(outside)
    tv, most = distance(a, b)
    print("%s: %d samples inside, %d outside, distance %.1f %%, at most %.1f %%" % (
        what, sum(a.values()), sum(b.values()), 100 * tv, 100 * most))
    return sum(a.values()) >= 50 and tv <= most


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("moonspy")
    parser.add_argument("modules")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--luajit", default=os.environ.get("LUAJIT", "luajit"))
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    if not shutil.which(options.luajit):
        print("SKIP: no " + options.luajit)
        return 77
    if os.geteuid():
        print("SKIP: not root: the kernel does not let a plain user sample")
        return 77
    with tempfile.TemporaryDirectory() as work:
        results = [run(options, what, work) for what in options.names or ["truth:nojit", "truth:jit", "mixed:nojit", "mixed:jit"]]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
