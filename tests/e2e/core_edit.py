#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes another core of a core.

    core_edit.py no-list|arm64|narrow|rename FROM TO [OLD NEW]
no-list: without the list of mapped files (NT_FILE); arm64: says that it is of arm64, which it is not; narrow: of 32 bits;
rename: OLD is NEW in all names, of the same length.
"""
import struct
import sys

NT_FILE = 0x46494c45


def drop_list(core):
    phoff, phnum = struct.unpack_from("<Q", core, 32)[0], struct.unpack_from("<H", core, 56)[0]
    for i in range(phnum):
        kind, _, at, _, _, filled = struct.unpack_from("<IIQQQQ", core, phoff + 56 * i)
        end = at + filled
        while kind == 4 and at < end:
            name, size, note = struct.unpack_from("<III", core, at)
            if note == NT_FILE:
                struct.pack_into("<I", core, at + 8, 0x12345)
            at += 12 + ((name + 3) & ~3) + ((size + 3) & ~3)


def main():
    how, source, target = sys.argv[1:4]
    with open(source, "rb") as f:
        core = bytearray(f.read())
    if how == "no-list":
        drop_list(core)
    elif how == "arm64":
        struct.pack_into("<H", core, 18, 183)
    elif how == "narrow":
        core[4] = 1
    elif how == "rename":
        old, new = (text.encode() for text in sys.argv[4:6])
        assert len(old) == len(new) and old in core
        core = core.replace(old, new)
    with open(target, "wb") as f:
        f.write(core)


if __name__ == "__main__":
    main()
