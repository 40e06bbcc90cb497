#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The stream as docs/sysprof.md has it, read by a parser of its own; and the flame graph one expects of it.

usage: format.py MOONSPY MODULES [LUAJIT]
"""
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile

from workloads import HERE, environment

RECORD_ADDRESS = 1 << 62
FIELDS = {"i": "tt", "n": "nnt", "o": "ttt", "f": "nnttnntnn", "e": "nnn"}


class Stream:
    def __init__(self, data):
        self.data, self.at = data, 0
        self.lua, self.c, self.traces = {}, {}, {}
        self.frames, self.records, self.samples = [], collections.Counter(), collections.Counter()
        self.pending = None

    def byte(self):
        self.at += 1
        return self.data[self.at - 1]

    def number(self):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                assert value < 1 << 64
                return value

    def string(self):
        size = self.number()
        self.at += size
        assert self.at <= len(self.data)
        return self.data[self.at - size:self.at]

    def text(self):
        text = self.string()
        assert not text or text[-1] == 0
        return text[:-1].decode() if text else None

    def head(self, magic, version):
        assert self.data[self.at:self.at + 7] == magic + bytes([version, 0, 0, 0]), self.at
        self.at += 7

    def symbol(self, kind):
        if kind == 0:
            number, chunk, line = self.number(), self.string().decode(), self.number()
            assert chunk[0] in "@="
            self.lua[number] = (chunk, line)
        elif kind == 1:
            number, name = self.number(), self.string()
            if number == RECORD_ADDRESS:
                self.record(name)
            else:
                self.c[number] = name.decode()
        else:
            number, start, line = self.number(), self.number(), self.number()
            assert start in self.lua
            self.traces[number] = (start, line)

    def record(self, data):
        assert data[:3] == b"msp"
        fields, kind = Stream(data[4:]), chr(data[3])
        if kind == "s":
            pid, tid, count = fields.number(), fields.number(), fields.number()
            stack = [fields.number() for _ in range(count)]
            assert pid and tid and all(number < len(self.frames) for number in stack)
            assert self.pending is None
            self.pending = stack
        else:
            values = [fields.text() if what == "t" else fields.number() for what in FIELDS[kind]]
            if kind == "f":
                self.frames.append(values)
        assert fields.at == len(fields.data)
        self.records[kind] += 1

    def sample(self, state):
        lua, host = [], []
        if state == 9:
            trace, start, line = self.number(), self.number(), self.number()
            assert self.traces[trace][0] == start and self.lua[start][1] == line
        else:
            while state in (1, 2, 3):
                kind = self.byte()
                if kind == 0x80:
                    break
                assert 1 <= kind <= 3
                number = self.number()
                lua.append(number)
                assert kind != 1 or self.lua[number][1] == self.number()
                assert kind != 2 or number in self.c
            while True:
                number = self.number()
                if not number:
                    break
                assert number in self.c
                host.append(number)
            assert host
        assert self.pending, "a sample without a record"
        # Both tell the same: native frames and C functions, Lua frames and what is called from Lua.
        kinds = [self.frames[number][0] for number in self.pending]
        vm = [self.frames[number][1] & 2 for number in self.pending]
        if state != 9:
            assert len(host) == sum(kind in (4, 5) and not flag for kind, flag in zip(kinds, vm))
        if state in (1, 2, 3):
            assert len(lua) == sum(kind <= 4 for kind in kinds)
        self.pending = None
        self.samples[state] += 1

    def read(self):
        self.head(b"ljs", 3)
        while True:
            kind = self.byte()
            if kind & 0x80:
                break
            self.symbol(kind)
        self.head(b"ljp", 2)
        while True:
            event = self.byte()
            if event & 0x80:
                break
            if event < 10:
                self.sample(event)
            else:
                assert event <= 12, event
                self.symbol(event - 10)
        assert self.at == len(self.data) and self.records["e"] == 1


def run(moonspy, modules, luajit, mode, jit, work):
    path = os.path.join(work, "fib.bin")
    out = subprocess.run([luajit, os.path.join(HERE, "fib.lua"), path, mode, jit], env=environment(modules, work),
                         capture_output=True, text=True, check=True).stdout.split()
    with open(path, "rb") as file:
        stream = Stream(file.read())
    stream.read()
    counted = [int(word) for word in out]
    assert counted == [sum(stream.samples.values()), stream.samples[1], stream.samples[9]], (counted, stream.samples)
    folded = subprocess.run([moonspy, "report", path, "-f", "folded", "-o", "-"], capture_output=True, text=True,
                            check=True).stdout.splitlines()
    stacks = collections.Counter()
    for line in folded:
        stacks[line.rsplit(" ", 1)[0]] += int(line.rsplit(" ", 1)[1])
    total = sum(stacks.values())
    assert total == counted[0]
    if mode == "C":
        wanted = re.compile(r"^_start \(.*;main chunk \(.*fib\.lua:0\)[^;]*;(payload \(.*\)[^;]*;)?~?fib \(.*fib\.lua:6\)")
        good = sum(count for stack, count in stacks.items() if wanted.search(stack))
        assert good >= 0.9 * total, folded[:5]
    else:
        assert all(len(stack.split(";")) <= 3 for stack in stacks), folded[:5]
    print("%s %s: %d samples, %d bytes, %d stacks" % (mode, jit, total, len(stream.data), len(stacks)))


def main():
    moonspy, modules = sys.argv[1:3]
    luajit = sys.argv[3] if len(sys.argv) > 3 else "luajit"
    if not shutil.which(luajit):
        print("SKIP: no " + luajit)
        return 77
    with tempfile.TemporaryDirectory() as work:
        for mode in "CL":
            for jit in ("nojit", "jit"):
                run(moonspy, modules, luajit, mode, jit, work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
