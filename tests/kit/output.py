#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: output.py WITHOUT WITH: two LuaJITs, built without the kit and with it, say the same.

All programs of tests/workloads that are Lua alone, interpreted and compiled, by WITH also with tables of traces.
Their clock counts calls, so that they do the same amount of work each time."""
import glob
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# They are loaded by others, talk to others, print times, or go by the order of a hash, which is another in each run.
NOT_ALONE = {"drive.lua", "plugin.lua", "sysbench.lua", "wrk.lua", "late.lua", "truth.lua", "fastfuncs.lua"}
CLOCK = """
local calls, now = 0, 0
os.clock = function()
	calls = calls + 1
	now = now + (calls < 8 and 0.001 or 0.004)
	return now
end
os.time = function() return math.floor(now) end
"""


def programs():
    for path in sorted(glob.glob(os.path.join(HERE, "../workloads/*.lua"))):
        if os.path.basename(path) not in NOT_ALONE and not os.path.basename(path).startswith("names"):
            yield path


def output(luajit, path, mode, tables=False):
    env = dict(os.environ, LUAJIT_TRACE_TABLES="1" if tables else "0")
    done = subprocess.run([luajit, "-e", CLOCK, path, "2", mode], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=600)
    return done.returncode, done.stdout


def main():
    without, with_kit = (os.path.abspath(path) for path in sys.argv[1:3])
    compared = size = count = 0
    wrong = []
    for path in programs():
        count += 1
        for mode in ("nojit", "jit"):
            plain = output(without, path, mode)
            for tables in (False, True):
                compared, size = compared + 1, size + len(plain[1])
                if output(with_kit, path, mode, tables) != plain:
                    wrong.append("%s %s%s" % (os.path.basename(path), mode, " with tables" if tables else ""))
            if plain[0] or not plain[1]:
                wrong.append("%s %s: status %d, %d bytes of output: %s" % (os.path.basename(path), mode, plain[0], len(plain[1]),
                                                                        plain[1][-200:]))
    print("output: %d runs of %d programs compared, %d bytes" % (compared, count, size))
    if wrong or not compared:
        sys.exit("\n".join(wrong))


main()
