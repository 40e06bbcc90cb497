#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: compiled.py BUILD KIT-CONSTANTS LIBRARY

What the companion finds out about a LuaJIT is what the compiler said as it was built: LIBRARY has the VM descriptor of
instrument/, which the companion leaves alone. Of a copy in which neither symbol nor note leads to it the companion has to find
out by itself, and what it then says is compared.
"""
import os
import struct
import subprocess
import sys
import tempfile

import descriptor

NOTE = struct.pack("<III", 7, 8, 1) + b"LuaJIT"


def copied(library, folder, hidden):
    """Under the name that programs ask for; hidden: nothing leads to its descriptor."""
    with open(library, "rb") as file:
        content = file.read()
    assert NOTE in content and b"luaJIT_vm_descriptor\0" in content, library
    if hidden:
        content = content.replace(NOTE, NOTE[:-1] + b"X").replace(b"luaJIT_vm_descriptor\0", b"luaJIT_vm_descriptoX\0")
    with open(os.path.join(folder, "libluajit-5.1.so.2"), "wb") as file:
        file.write(content)


def found(build, folder):
    """The descriptors that are in a program with that library and the companion: the VM's own, the companion's."""
    program = subprocess.Popen([os.path.join(build, "tests/companion/companion-host")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, env=dict(os.environ, LD_LIBRARY_PATH=folder,
                                                   LD_PRELOAD=os.path.join(build, "src/companion/libmoonspy-vm.so")))
    program.stdin.write("new 1\n")
    program.stdin.flush()
    assert program.stdout.readline() == "done\n"
    with open("/proc/%d/maps" % program.pid) as maps:
        assert folder in maps.read(), "another LuaJIT was loaded"
    all_ = descriptor.descriptors(program.pid)
    program.stdin.close()
    program.wait()
    return [d for d in all_ if not d.flags & 1], [d for d in all_ if d.flags & 1]


def main():
    build, constants, library = sys.argv[1:]
    said = dict(line.split() for line in subprocess.run([constants, library], stdout=subprocess.PIPE, check=True, text=True)
                .stdout.splitlines())
    with tempfile.TemporaryDirectory() as folder:
        copied(library, folder, False)
        own, ours = found(os.path.abspath(build), folder)
        assert len(own) == len(ours) == 1 and own[0].constants and not ours[0].constants, "a LuaJIT with a descriptor is not left alone"
        copied(library, folder, True)
        own, ours = found(os.path.abspath(build), folder)
        assert not own and len(ours) == 1, (own, ours)
        known = {name: value for name, value in ours[0].constants.items() if value != -1}
    wrong = ["%s is %d, the compiler says %s" % (name, value, said[name]) for name, value in known.items() if int(said[name]) != value]
    if not known:
        print("companion: cannot be proved")
        return
    print("companion: %d of %d constants known, %d wrong" % (len(known), len(said), len(wrong)))
    if wrong or len(known) < 80:
        sys.exit("\n".join(wrong))


main()
