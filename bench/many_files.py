# SPDX-License-Identifier: MIT
"""usage: many_files.py COUNT LIBRARY...: maps files until there are COUNT, says `ready N`, and is busy in Lua."""
import ctypes
import sys

import lupa


def mapped():
    with open("/proc/self/maps") as file:
        return len({line.split()[-1] for line in file if ".so" in line})


for path in sys.argv[2:]:
    if mapped() >= int(sys.argv[1]):
        break
    try:
        ctypes.CDLL(path)
    except OSError:
        pass
print("ready %d" % mapped(), flush=True)
lupa.LuaRuntime().execute("local x = 0 while true do x = (x + 1) % 7 end")
