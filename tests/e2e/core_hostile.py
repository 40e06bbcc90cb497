#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Objects that lie, in the core of values.lua: each is marked as what it is not, and nothing else changes.

    core_hostile.py MOONSPY CORE [RANDOM-CHANGES]
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

# Offsets of LuaJIT 2.1 with GC64 (GChead, GCtab, GCfunc, GCcdata)
GCT, ARRAY, NODE, ASIZE, HMASK, PC, CTYPE = 9, 16, 40, 48, 52, 32, 10
# Local, offset, bytes that are written, and what its value must then be
LIES = (
    ("map", GCT, b"\x05", {"type": "unreadable"}),
    ("nested", HMASK, struct.pack("<I", 2), {"type": "table", "entries": None}),
    ("wide", ARRAY, struct.pack("<Q", 16), {"type": "table", "entries": None}),
    ("list", NODE, struct.pack("<Q", 12345), {"type": "table", "entries": None}),
    ("empty", ASIZE, struct.pack("<I", 0x7ffffff), {"type": "table", "entries": None}),
    ("cycle", NODE, b"\xff" * 8, {"type": "table", "entries": None}),
    ("lua", PC, struct.pack("<Q", 16), {"type": "unreadable"}),
    ("fast", GCT, b"\x0b", {"type": "unreadable"}),
    ("co", GCT, b"\x04", {"type": "unreadable"}),
    ("file", GCT, b"\x00", {"type": "unreadable"}),
    ("point", CTYPE, b"\xff\xff", {"type": "cdata", "ctype": "?", "content": None}),
    ("pointer", GCT, b"\x0c", {"type": "unreadable"}),
)


def show(moonspy, core):
    run = subprocess.run([moonspy, "core", "-q", "-j", "-llc", core], capture_output=True, text=True, timeout=60, check=False)
    return run.returncode, run.stdout, run.stderr


def variables(out):
    """Of each local that can be found by its name alone: what is shown of it."""
    found = {}
    for frame in json.loads(out)["threads"][0]["stack"]:
        for local in frame.get("locals") or []:
            found[local["name"]] = local["value"] if local["name"] not in found else None
    return found


class Core:
    def __init__(self, path):
        with open(path, "rb") as f:
            self.bytes = bytearray(f.read())
        phoff, count = struct.unpack_from("<Q", self.bytes, 32)[0], struct.unpack_from("<H", self.bytes, 56)[0]
        headers = [struct.unpack_from("<IIQQQQQQ", self.bytes, phoff + 56 * i) for i in range(count)]
        self.segments = [(h[3], h[5], h[2]) for h in headers if h[0] == 1 and h[1] & 2]

    def poke(self, addr, what):
        for start, size, offset in self.segments:
            if start <= addr < start + size:
                self.bytes[offset + addr - start:offset + addr - start + len(what)] = what

    def write(self, folder):
        path = os.path.join(folder, "core")
        with open(path, "wb") as f:
            f.write(self.bytes)
        return path


def check_lies(moonspy, path, folder):
    """Each lie alone: other values may hold the object, too."""
    truth, wrong = variables(show(moonspy, path)[1]), 0
    for name, offset, what, wanted in LIES:
        core = Core(path)
        core.poke(int(truth[name]["address"], 16) + offset, what)
        status, out, err = show(moonspy, core.write(folder))
        got = variables(out) if status in (0, 4) else {name: err}
        value = got[name]
        if not isinstance(value, dict) or any(value.get(k, "absent") != v for k, v in wanted.items()):
            print(f"FAIL: {name} lies: exit status {status}, {value}, not {wanted}")
            wrong += 1
        simple = ("string", "number", "boolean", "nil")
        for other, value in truth.items():
            if value and value["type"] in simple and got.get(other) != value:
                print(f"FAIL: {name} lies: {other} is {got.get(other)}, not {value}")
                wrong += 1
    return wrong


def check_random(moonspy, path, folder, changes):
    """Words of the heap that are anything: an answer, or a clear no."""
    rng, wrong = random.Random(int(os.environ.get("SEED", "1"))), 0
    for _ in range(changes):
        core = Core(path)
        for _ in range(rng.choice((1, 10, 300))):
            start, size, _ = rng.choice(core.segments)
            core.poke(start + rng.randrange(size // 8) * 8, struct.pack("<Q", rng.choice((0, rng.randrange(1 << 48), start, rng.getrandbits(64)))))
        status, out, err = show(moonspy, core.write(folder))
        if status not in (0, 4) or not json.loads(out)["threads"]:
            print(f"FAIL: random changes: exit status {status}: {err}")
            wrong += 1
    return wrong


def main():
    moonspy, path = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        wrong = check_lies(moonspy, path, folder)
        wrong += check_random(moonspy, path, folder, int(sys.argv[3]) if len(sys.argv) > 3 else 30)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
