#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Small cores, made of a real one: of what the reader looks at first, headers, notes, beginnings of mappings.

    core_seeds.py CORE FOLDER
"""
import struct
import sys

LIST = 0x46494c45  # NT_FILE
READ = (1, 3, 6, LIST, 0x53494749)  # PRSTATUS, PRPSINFO, AUXV, FILE, SIGINFO
# Name, bytes that are kept of a mapping, each n-th mapping, notes that are kept (None: all)
SEEDS = (("tiny", 64, 4, READ), ("some", 200, 2, READ), ("small", 512, 1, None), ("page", 4096, 1, None),
         ("modules", 1024, 2, [kind for kind in READ if kind != LIST]))


def keep_notes(notes, kinds):
    at, out = 0, b""
    while at < len(notes):
        name, size, kind = struct.unpack_from("<III", notes, at)
        end = at + 12 + ((name + 3) & ~3) + ((size + 3) & ~3)
        if notes[at + 12:at + 16] == b"CORE" and kind in kinds:
            out += notes[at:end]
        at = end
    return out


def make(core, keep, every, notes):
    phoff, phnum = struct.unpack_from("<Q", core, 32)[0], struct.unpack_from("<H", core, 56)[0]
    segments = [struct.unpack_from("<IIQQQQQQ", core, phoff + 56 * i) for i in range(phnum)]
    segments = [s for i, s in enumerate(segments) if s[0] == 4 or i % every == 0]
    start, headers, body = 64 + 56 * len(segments), [], b""
    for kind, flags, offset, addr, phys, filled, size, align in segments:
        content = core[offset:offset + (filled if kind == 4 else min(filled, keep))]
        if kind == 4 and notes:
            content = keep_notes(content, notes)
        headers.append(struct.pack("<IIQQQQQQ", kind, flags, start + len(body), addr, phys, len(content), size, align))
        body += content
    head = core[:32] + struct.pack("<QQ", 64, 0) + core[48:56] + struct.pack("<H", len(segments)) + core[58:64]
    return head + b"".join(headers) + body


def main():
    with open(sys.argv[1], "rb") as f:
        core = f.read().replace(b"/usr/", b"/nil/")  # the files of this machine are not meant
    for name, *how in SEEDS:
        with open(f"{sys.argv[2]}/{name}", "wb") as f:
            f.write(make(core, *how))


if __name__ == "__main__":
    main()
