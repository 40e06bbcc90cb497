#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: crash.py CRASH.so: the crash reporter of examples/ prints the stack of a SIGSEGV, C and Lua in one."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM = """
local ffi = require "ffi"
ffi.cdef "size_t strlen(const char *);"
local function crashes() local n = ffi.C.strlen(ffi.cast("const char *", 8)) return n end
local function works(f) local x = f() return x end
%s
for i = 1, %d do works(function() return i end) end
works(crashes)
"""
WANTED = r"strlen.* in libc.*crashes \(crash.lua:4\).*works \(crash.lua:5\).*main chunk \(crash.lua:8\).*main in .*_start in "


def crash(module, work, jit, rounds):
    path = os.path.join(work, "crash.lua")
    with open(path, "w") as file:
        file.write(PROGRAM % ("" if jit else "jit.off()", rounds))
    env = dict(os.environ, LD_PRELOAD=module)
    program = subprocess.Popen(["luajit", "crash.lua"], env=env, cwd=work, stderr=subprocess.PIPE, text=True)
    begun, lines = None, []
    for line in program.stderr:
        begun = begun or ("crashed" in line and time.monotonic())
        lines.append(line.strip())
        ended = time.monotonic()
    status = program.wait()
    found = re.search(WANTED, "|".join(lines))
    print("%s: %d lines in %.1f ms%s" % ("jit" if jit else "interpreter", len(lines), 1000 * (ended - begun) if begun else -1,
                                         "" if found else ": " + "|".join(lines)))
    return found and status == -signal.SIGSEGV


def main():
    if not shutil.which("luajit"):
        print("SKIP: luajit is not installed")
        return 77
    with tempfile.TemporaryDirectory() as work:
        good = [crash(os.path.abspath(sys.argv[1]), work, jit, rounds) for jit, rounds in ((False, 1), (True, 1000))]
    return 0 if all(good) else 1


sys.exit(main())
