#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Core files that qemu's user mode writes lack what the kernel's have: the list of mapped files (NT_FILE)
and the first page of each. Adds both, from the maps of the emulator, in which guest addresses are
the host's own.

    qemu_core.py CORE MAPS OUT
"""
import struct
import sys

PT_LOAD, PT_NOTE, NT_FILE = 1, 4, 0x46494C45
PAGE = 4096


def mapped_files(path):
    files = []
    with open(path) as f:
        for line in f:
            fields = line.split(None, 5)
            if len(fields) < 6 or not fields[5].startswith("/"):
                continue
            start, end = (int(x, 16) for x in fields[0].split("-"))
            files.append((start, end, int(fields[2], 16), fields[5].rstrip("\n")))
    return files


def note(name, kind, body):
    pad = lambda b: b + bytes(-len(b) % 4)
    name = name.encode() + b"\0"
    return struct.pack("<III", len(name), len(body), kind) + pad(name) + pad(body)


def file_note(files):
    body = struct.pack("<QQ", len(files), PAGE)
    for start, end, offset, _ in files:
        body += struct.pack("<QQQ", start, end, offset // PAGE)
    for *_, name in files:
        body += name.encode() + b"\0"
    return note("CORE", NT_FILE, body)


def main():
    core_path, maps_path, out_path = sys.argv[1:4]
    with open(core_path, "rb") as f:
        core = f.read()
    phoff, = struct.unpack_from("<Q", core, 32)
    phnum, = struct.unpack_from("<H", core, 56)
    headers = [list(struct.unpack_from("<IIQQQQQQ", core, phoff + 56 * i)) for i in range(phnum)]
    loads = [h for h in headers if h[0] == PT_LOAD]
    # The emulator's own files are not in the guest's memory.
    files = [f for f in mapped_files(maps_path)
             if any(h[3] <= f[0] < h[3] + h[6] for h in loads)]

    out = bytearray(core[:64]) + bytearray(56 * phnum)
    for h in headers:
        content = core[h[2]:h[2] + h[5]]
        if h[0] == PT_NOTE:
            content += file_note(files)
        elif h[0] == PT_LOAD and not h[5]:
            for start, _, offset, name in files:
                if start == h[3] and offset == 0:
                    with open(name, "rb") as f:
                        content = f.read(PAGE)
        if h[0] == PT_LOAD:
            out += bytes(-len(out) % PAGE)
        h[2], h[5] = len(out), len(content)
        out += content
    struct.pack_into("<Q", out, 32, 64)
    for i, h in enumerate(headers):
        struct.pack_into("<IIQQQQQQ", out, 64 + 56 * i, *h)
    with open(out_path, "wb") as f:
        f.write(out)


if __name__ == "__main__":
    main()
