#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: notes.py HEADER PARTS FILE...

The notes of a LuaJIT with the VM descriptor, in each FILE: one leads to the descriptor; the probes are those that HEADER tells
of, with as many arguments, all in registers, and each lies on a nop. PARTS: the words for what the build has, of jit, live,
probes and note.
"""
import re
import subprocess
import sys

NOP = {"X86-64": b"\x90", "AArch64": b"\x1f\x20\x03\xd5"}
REGISTER = {"X86-64": r"8@%r\w+", "AArch64": r"8@x\d+"}
NOTE = re.compile(r"Provider: luajit\s+Name: (\w+)\s+Location: (\w+), Base: (\w+), Semaphore: (\w+)\s+Arguments: (.*)")
LOAD = re.compile(r"^ *LOAD +(\w+) (\w+) \w+ (\w+)", re.M)
SECTION = r"\] %s +\w+ +(\w+) (\w+) \w+ \w+ +(\w+)"


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout


def told_of(header, parts):
    """Name and number of arguments of each probe that a build with these parts has."""
    with open(header, encoding="ascii") as file:
        rows = re.findall(r'^\t_\((\w+), "([^"]+)", "[^"]+"\)', file.read().split("define LJVM_PROBES")[1], re.M)
    assert rows, "the header tells of no probes"
    return {name: len(arguments.split(", ")) for name, arguments in rows if "probes" in parts and
            ("jit" in parts or not name.startswith("trace_")) and ("live" in parts or name != "gc_phase")}


class File:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.content = file.read()
        self.machine = "AArch64" if "AArch64" in readelf("-h", path) else "X86-64"
        self.loads = [tuple(int(word, 16) for word in load) for load in LOAD.findall(readelf("-l", path))]
        self.sections, self.notes = readelf("-S", path), NOTE.findall(readelf("-n", path))

    def section(self, name):
        """Address, offset and flags; None: it has no such one."""
        found = re.search(SECTION % re.escape(name), self.sections)
        return found and (int(found.group(1), 16), int(found.group(2), 16), found.group(3))

    def at(self, address, size):
        for offset, start, length in self.loads:
            if start <= address < start + length:
                return self.content[offset + address - start:offset + address - start + size]
        return b""


def descriptor_faults(file, wanted):
    section = file.section(".note.luajit")
    if not wanted:
        return ["a note, though it was left out"] if section else []
    if not section or section[2] != "A":
        return ["no note that is loaded leads to the descriptor"]
    address, offset, _ = section
    distance = int.from_bytes(file.content[offset + 20:offset + 28], "little", signed=True)
    magic = file.at(address + 20 + distance, 8)
    return [] if magic == b"LuaJITvm" else ["the note leads to %r" % magic]


def probe_faults(file, told):
    base = file.section(".stapsdt.base")
    for name, location, of_base, semaphore, arguments in file.notes:
        words = arguments.split()
        if file.at(int(location, 16), len(NOP[file.machine])) != NOP[file.machine]:
            yield "%s lies on no nop" % name
        if len(words) != told.get(name) or not all(re.fullmatch(REGISTER[file.machine], word) for word in words):
            yield "%s has the arguments %s" % (name, arguments)
        if not base or int(of_base, 16) != base[0] or int(semaphore, 16):
            yield "%s has another base, or a semaphore" % name


def main():
    parts = sys.argv[2].split()
    told = told_of(sys.argv[1], parts)
    wrong = []
    for path in sys.argv[3:]:
        file = File(path)
        has = {note[0] for note in file.notes}
        print("notes (%s): %d probes at %d places" % (file.machine, len(has), len(file.notes)))
        faults = descriptor_faults(file, "note" in parts) + list(probe_faults(file, told))
        if has != set(told):
            faults.append("probes %s, told of %s" % (sorted(has), sorted(told)))
        wrong += ["%s: %s" % (path, fault) for fault in faults]
    if wrong:
        sys.exit("\n".join(wrong))


main()
