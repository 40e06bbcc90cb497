#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: foreign_core.py REMOTE COMPANION LUAJIT EMULATOR...

A program of another architecture dies under qemu's user mode, which writes a core file. Here helpers read that: the descriptor's
constants are all that they know of the other build. Its Lua stack is what the program said itself."""
import glob
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile

PROGRAM = """local ffi = require("ffi")
ffi.cdef("void abort(void);")
local function inner()
  io.write(debug.traceback("")) io.flush() ffi.C.abort()
  return 1
end
local function outer()
  local x = inner()
  return x
end
local co = coroutine.wrap(function()
  local x = outer()
  return x
end)
co()
"""


def descriptor(path):
    """Its address: where the core has the magic and the major version."""
    with open(path, "rb") as file:
        content = file.read()
    start, = struct.unpack_from("<Q", content, 32)
    count, = struct.unpack_from("<H", content, 56)
    found = []
    for i in range(count):
        kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", content, start + 56 * i)
        if kind == 1:
            part = content[offset:offset + size]
            found += [address + hit.start() for hit in re.finditer(b"LuaJITvm\x01\0", part)]
    if len(found) != 1:
        sys.exit("%d descriptors in the core file" % len(found))
    return found[0]


def main():
    remote, companion, luajit, *emulator = (os.path.abspath(word) if os.path.exists(word) else word for word in sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "dies.lua"), "w", encoding="ascii") as file:
            file.write(PROGRAM)
        command = [*emulator, "-E", "LD_LIBRARY_PATH=" + os.path.dirname(luajit), luajit, "dies.lua"]
        said = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        cores = glob.glob(os.path.join(folder, "qemu_*.core"))
        if len(cores) != 1:
            sys.exit("%d core files; the program said: %s" % (len(cores), said))
        seen = subprocess.run([remote, companion, cores[0], str(descriptor(cores[0]))], stdout=subprocess.PIPE, text=True,
                              check=True).stdout
    lines = re.findall(r"^\t(dies\.lua:\d+): in function", said, re.M)
    if len(lines) < 3 or re.findall(r"^@(.*)", seen, re.M) != lines:
        sys.exit("the program's stack is %s, from its core file:\n%s" % (lines, seen))
    print("core file of another architecture: the %d Lua functions and lines that the program said" % len(lines))


main()
