# SPDX-License-Identifier: MIT
"""The commands lua-vms and lua-stack [N] for gdb: the LuaJIT VMs of a process or core, and what VM N (from 1) runs.

    gdb -p PID -x lua_vms.py -ex lua-vms -ex lua-stack

While the interpreter itself runs, the innermost functions can be missing: it has them in registers.
Needs nothing but the VM descriptor (moonspy/vm_descriptor.h, from which it has the names of the constants).
"""
import os
import re
import struct

import gdb

HERE = os.path.dirname(os.path.abspath(__file__))
HEADERS = (os.path.join(HERE, "../../include/moonspy/vm_descriptor.h"), "/usr/local/include/moonspy/vm_descriptor.h",
           "/usr/include/moonspy/vm_descriptor.h")


def names_of_constants():
    with open(next(path for path in HEADERS if os.path.exists(path))) as file:
        text = file.read()
    return re.findall(r"^\t_\((\w+),", text[text.index("#define LJVM_CONSTANTS"):text.index("struct ljvm_constants")], re.M)


def read(at, size):
    return bytes(gdb.selected_inferior().read_memory(at & (1 << 64) - 1, size))


def number(at, size):
    return int.from_bytes(read(at, size), "little")


def text(at):
    found = b""
    while b"\0" not in found:
        found += read(at + len(found), 16)
    return found.split(b"\0")[0].decode(errors="replace")


class Descriptor:
    """What luaJIT_vm_descriptor says. Its parts have the size 0 while it is not filled."""

    def __init__(self):
        at = int(gdb.parse_and_eval("(long)&luaJIT_vm_descriptor"))
        head = read(at, 48)
        parts = struct.unpack("<6I", head[24:48])
        if head[:8] != b"LuaJITvm" or struct.unpack("<H", head[8:10])[0] != 1:
            raise gdb.GdbError("a descriptor of another kind")
        if not parts[1] or not parts[3]:
            raise gdb.GdbError("the descriptor is not filled yet")
        values = struct.unpack("<%di" % (parts[1] // 4), read(at + parts[0], parts[1]))
        for name, value in zip(names_of_constants(), values):
            setattr(self, name, value)
        self.addresses = struct.unpack("<%dQ" % (parts[3] // 8), read(at + parts[2], parts[3]))
        self.ref_size = 8 if self.gc64 else 4

    def ref(self, at):
        return number(at, self.ref_size)

    def vms(self):
        live = self.addresses[9]
        slot_size, at = number(live + 4, 4), number(live + 8, 8)
        while at:
            for i in range(number(at + 8, 4)):
                g, _, _, serial = struct.unpack("<QQQI", read(at + 16 + i * slot_size, 28))
                if g:
                    yield serial, g
            at = number(at, 8)

    def name(self, n, index):
        """The index-th of a list of names."""
        at = self.addresses[n]
        for _ in range(index):
            at += len(text(at)) + 1
        return text(at)


def line_of(d, pt, pos):
    lines, first, count = d.ref(pt + d.pt_lineinfo), number(pt + d.pt_firstline, 4), number(pt + d.pt_numline, 4)
    if not lines or pos < 0:
        return "(%d)" % first
    width = 1 if count < 256 else 2 if count < 65536 else 4
    return str(first + (number(lines + (pos - 1) * width, width) if pos else 0))


def show(d, function, pc):
    ffid = number(function + d.fn_ffid, 1)
    if ffid == d.ff_c:
        code = number(function + d.fn_cfunc, 8)
        symbol = gdb.execute("info symbol 0x%x" % code, to_string=True).split(" in section")[0]
        return "C function 0x%x" % code if symbol.startswith("No symbol") else "C function " + symbol.strip()
    if ffid:
        return d.name(3, ffid)
    pt = d.ref(function + d.fn_pc) - d.pt_size
    name = d.ref(pt + d.pt_chunkname)
    chunk = read(name + d.str_data, min(number(name + d.str_len, 4), 200)).decode(errors="replace").split("\n")[0]
    pos = (pc - pt - d.pt_size) // 4 - 1
    return "%s:%s" % (chunk.lstrip("@="), line_of(d, pt, pos if 0 <= pos < number(pt + d.pt_sizebc, 4) else -1))


def stack(d, g):
    """Functions of the coroutine that runs, innermost first. The innermost one's line is known if C code runs."""
    L = d.ref(g + d.g_cur_L)
    cframe = number(L + d.L_cframe, 8) & ~d.cframe_flags
    head, pc = (16 if d.fr2 else 8), number(cframe + d.cf_PC, d.cf_ref_size) if cframe else 0
    jit_base = d.ref(g + d.g_jit_base) if d.jit else 0
    base, bottom = jit_base or number(L + d.L_base, 8), d.ref(L + d.L_stack) + head + 8
    while base >= bottom:
        slot = read(base - head, head)
        if d.fr2:
            function, link = struct.unpack("<QQ", slot)
            function &= (1 << d.tv_shift) - 1
        else:
            function, link = struct.unpack("<II", slot)
        kind = link & d.frame_typep
        if number(function + d.gc_gct, 1) == d.gct_func and kind != d.frame_varg:
            yield show(d, function, pc)
        if kind != d.frame_varg:
            pc = link if link & d.frame_type == d.frame_lua else 0
        if kind == d.frame_cont:
            pc = d.ref(base - head - d.ref_size)
        size = head + (number(link - 4, 4) >> 8 & 255) * 8 if link & d.frame_type == d.frame_lua else link & ~d.frame_typep
        if size < head:
            yield "the stack is broken here"
            return
        base -= size


class LuaVms(gdb.Command):
    """lua-vms: the LuaJIT VMs of the process."""

    def __init__(self):
        super().__init__("lua-vms", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        d = Descriptor()
        for serial, g in d.vms():
            state = number(g + d.g_vmstate, 4)
            state = "compiled code" if state < 1 << 31 else d.name(4, state ^ 0xffffffff)
            print("VM %d: global_State 0x%x, %s, %s" % (serial, g, text(d.addresses[7]), state))


class LuaStack(gdb.Command):
    """lua-stack [N]: the functions of the coroutine that VM N runs, innermost first."""

    def __init__(self):
        super().__init__("lua-stack", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        d = Descriptor()
        for serial, g in d.vms():
            if not argument or serial == int(argument):
                for i, function in enumerate(stack(d, g)):
                    print("#%-3d %s" % (i, function))
                return
        raise gdb.GdbError("there is no such VM")


LuaVms()
LuaStack()
