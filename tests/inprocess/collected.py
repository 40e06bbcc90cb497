#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Functions that are collected right after their tenth sample have their names: they are written while they exist.

usage: collected.py MOONSPY MODULES [LUAJIT]
exit status: 0 most have, 1 not, 77 no luajit here
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from workloads import HERE, environment

COUNT = 30


def run(moonspy, modules, luajit, mode, work):
    stream, out = os.path.join(work, "sysprof.bin"), os.path.join(work, "profile.json")
    subprocess.run([luajit, os.path.join(HERE, "collected.lua"), stream, mode, str(COUNT)], env=environment(modules, work),
                   check=True)
    subprocess.run([moonspy, "report", stream, "--force", "-q", "-f", "json", "-o", out], check=True)
    with open(out) as file:
        stacks = json.load(file)["stacks"]
    names = [frame["name"] or "" for stack in stacks for frame in stack["frames"]]
    found = {name for name in names if re.fullmatch(r"short\d+", name)}
    gone = sum(stack["count"] for stack in stacks if any(frame["name"] == "[function gone]" for frame in stack["frames"]))
    print("%s: %d of %d functions have their names; %d of %d samples show one that was gone" % (
        mode, len(found), COUNT, gone, sum(stack["count"] for stack in stacks)))
    return len(found) >= COUNT * 2 / 3  # by chance, with the thread never woken, at most half


def main():
    moonspy, modules = sys.argv[1:3]
    luajit = sys.argv[3] if len(sys.argv) > 3 else "luajit"
    if not shutil.which(luajit):
        print("SKIP: no " + luajit)
        return 77
    with tempfile.TemporaryDirectory() as work:
        results = [run(moonspy, modules, luajit, mode, work) for mode in ("jit", "nojit")]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
