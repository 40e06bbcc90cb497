#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: table_cost.py TABLE_COST LIBRARY: what tables of traces cost a LuaJIT built with the kit, in memory and in time to compile.

A program that does next to nothing but compile (table_cost.lua), with tables off and on. Instructions are counted by valgrind's
callgrind; the least of nine runs, since LuaJIT draws random numbers. Time: the least of nine runs each, in turn."""
import os
import re
import subprocess
import sys
import time

CODE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "table_cost.lua")
ROUNDS = "100"


def run(command):
    start = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done, time.perf_counter() - start


def instructions(command):
    callgrind = ["setarch", "-R", "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    return min(int(re.search(r"Collected : (\d+)", run(callgrind + command)[0].stderr).group(1)) for _ in range(9))


def main():
    program, library = (os.path.abspath(path) for path in sys.argv[1:3])
    commands = [[program, library, CODE, ROUNDS, on] for on in "01"]
    traces, code, tables = (int(n) for n in re.findall(r"\d+", run(commands[1])[0].stdout))
    if "\n0 bytes" not in run(commands[0])[0].stdout:
        sys.exit("there are tables though they are off")
    counts = [instructions(command) for command in commands]
    times = [[run(command)[1] for command in commands] for _ in range(9)]
    least = [min(pair[i] for pair in times) for i in range(2)]
    print("memory: %d traces, %d bytes of code, %d of tables: %d a trace, %.2f times the code" %
          (traces, code, tables, tables / traces, tables / code))
    print("compiling: %d instructions a trace, with tables %+.1f %%; time %+.1f %%" %
          (counts[0] / traces, 100 * (counts[1] / counts[0] - 1), 100 * (least[1] / least[0] - 1)))


main()
