#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program that profiles itself as the manual of Tarantool's profiler shows it, and by one command more its flame graph.

usage: manual.py MOONSPY MODULES [LUAJIT]
exit status: 0 it is what one expects, 1 not, 77 no luajit here
"""
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from workloads import HERE, environment


def varints(data):
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0


def stacks_of(page):
    """Stacks and counts of the page, from what it has in it: src/output/html.c says how."""
    text = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S).group(1)
    data = json.loads(text)
    numbers, path = varints(base64.b64decode(data["nodes"])), []
    for up in numbers:
        frame, count = next(numbers), next(numbers)
        path = path[:len(path) - up] + [data["names"][frame]]
        if count:
            yield list(path), count


def main():
    moonspy, modules = map(os.path.abspath, sys.argv[1:3])
    luajit = sys.argv[3] if len(sys.argv) > 3 else "luajit"
    if not shutil.which(luajit):
        print("SKIP: no " + luajit)
        return 77
    with tempfile.TemporaryDirectory() as work:
        out = subprocess.run([luajit, os.path.join(HERE, "fib.lua"), "sysprof.bin", "C", "jit"], cwd=work, check=True,
                             env=environment(modules, work), capture_output=True, text=True).stdout
        subprocess.run([moonspy, "report", "sysprof.bin", "-q", "-o", "out.html"], cwd=work, check=True)
        with open(os.path.join(work, "out.html"), encoding="utf-8") as file:
            page = file.read()
    assert page.startswith("<!DOCTYPE html>") and page.rstrip().endswith("</html>")
    total = inside = 0
    for names, count in stacks_of(page):
        total += count
        # payload() ends with a tail call: it is gone while fib() runs.
        inside += count * bool(re.search(r"main chunk \(.*fib\.lua:0\).*;~?fib \(.*fib\.lua:6\).*;~?fib \(", ";".join(names)))
    print("%d samples, %d of fib() in fib() below the main chunk" % (total, inside))
    assert total == int(out.split()[0]) and inside >= 0.5 * total
    return 0


if __name__ == "__main__":
    sys.exit(main())
