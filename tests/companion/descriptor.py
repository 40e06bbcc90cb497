# SPDX-License-Identifier: MIT
"""The VM descriptors of a process, read from outside with nothing but the header: its list of constants gives their names."""
import os
import re
import struct

HEADER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../include/moonspy/vm_descriptor.h")


def constant_names():
    with open(HEADER) as file:
        text = file.read()
    part = text[text.index("#define LJVM_CONSTANTS"):text.index("struct ljvm_constants")]
    return re.findall(r"^\t_\((\w+),", part, re.M)


def notes(memory, start):
    """(name, type, address of the content, content) of each note of the ELF file mapped there."""
    head = os.pread(memory, 64, start)
    if head[:4] != b"\x7fELF":
        return
    phoff, = struct.unpack_from("<Q", head, 32)
    phentsize, phnum = struct.unpack_from("<HH", head, 54)
    bias = None
    for i in range(phnum):
        kind, _, offset, vaddr, _, size = struct.unpack("<IIQQQQ", os.pread(memory, 40, start + phoff + i * phentsize))
        if kind == 1 and offset == 0:
            bias = start - vaddr
        if kind != 4 or bias is None:
            continue
        at, bytes_ = bias + vaddr, os.pread(memory, size, bias + vaddr)
        pos = 0
        while pos + 12 <= len(bytes_):
            namesz, descsz, note = struct.unpack_from("<III", bytes_, pos)
            name = bytes_[pos + 12:pos + 12 + namesz]
            content = pos + 12 + (namesz + 3 & ~3)
            yield name, note, at + content, bytes_[content:content + descsz]
            pos = content + (descsz + 3 & ~3)


class Descriptor:
    def __init__(self, memory, at):
        self.at = at
        magic, self.major, self.minor, self.size, self.pointer_size, self.flags = struct.unpack("<8sHHIBB", os.pread(memory, 18, at))
        assert magic == b"LuaJITvm"
        self.parts = struct.unpack("<6I", os.pread(memory, 24, at + 24))
        offset, size = self.parts[0:2]
        values = struct.unpack("<%di" % (size // 4), os.pread(memory, size, at + offset))
        self.constants = dict(zip(constant_names(), values))
        offset, size = self.parts[2:4]
        self.addresses = struct.unpack("<%dQ" % (size // 8), os.pread(memory, size, at + offset))
        self.memory = memory

    def texts(self, n):
        """The n-th member of struct ljvm_addresses as a list of names."""
        return [t.decode() for t in os.pread(self.memory, 16384, self.addresses[n]).split(b"\0\0")[0].split(b"\0")]


def descriptors(pid):
    found = []
    memory = os.open("/proc/%d/mem" % pid, os.O_RDONLY)
    with open("/proc/%d/maps" % pid) as maps:
        starts = [int(line.split("-")[0], 16) for line in maps if len(line.split()) > 5 and line.split()[2] == "00000000" and "/" in line]
    for start in starts:
        try:
            for name, kind, at, content in notes(memory, start):
                if name == b"LuaJIT\0" and kind == 1 and len(content) == 8:
                    found.append(Descriptor(memory, at + struct.unpack("<q", content)[0]))
        except OSError:
            continue
    return found
