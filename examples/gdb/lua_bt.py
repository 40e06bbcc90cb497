# SPDX-License-Identifier: MIT
"""The command lua-bt for gdb: the selected thread's stack, C and Lua in one.

    gdb -p PID -x lua_bt.py -ex lua-bt
    gdb luajit core -x lua_bt.py -ex lua-bt

gdb reads the memory and knows the registers; libmoonspy makes a stack of them. MOONSPY_LIBRARY says where
libmoonspy.so.0 is, if it is not where the loader looks.
"""
import ctypes as c
import os

import gdb

ERRORS = -9  # MSP_E_FAULT
DWARF = ("rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp") + tuple("r%d" % n for n in range(8, 16))


class Region(c.Structure):
    _fields_ = [("start", c.c_uint64), ("end", c.c_uint64), ("offset", c.c_uint64), ("prot", c.c_uint32),
                ("file", c.c_uint32), ("name", c.c_char_p)]


READ = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_uint64, c.c_void_p, c.c_size_t)
REGION = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_size_t, c.POINTER(Region))


class Reader(c.Structure):
    _fields_ = [("size", c.c_size_t), ("ctx", c.c_void_p), ("arch", c.c_int), ("read", READ), ("region", REGION),
                ("open", c.c_void_p)]


class Registers(c.Structure):
    _fields_ = [("reg", c.c_uint64 * 32), ("pc", c.c_uint64), ("syscall", c.c_bool)]


class Frame(c.Structure):
    _fields_ = [("kind", c.c_int), ("certain", c.c_bool), ("vm", c.c_bool), ("name", c.c_char_p),
                ("file", c.c_char_p), ("defined", c.c_uint32), ("line", c.c_uint32), ("object", c.c_char_p),
                ("address", c.c_uint64), ("trace", c.c_uint32)]


msp = c.CDLL(os.environ.get("MOONSPY_LIBRARY", "libmoonspy.so.0"))
msp.msp_target_error.restype = c.c_char_p
msp.msp_backtrace_frame.restype = c.POINTER(Frame)
msp.msp_backtrace_frame.argtypes = [c.c_void_p, c.c_size_t]


def regions():
    """The mappings, as gdb knows them of processes and cores."""
    files, found = {}, []
    for line in gdb.execute("info proc mappings", to_string=True).splitlines():
        words = line.split(None, 5)
        if len(words) < 4 or not words[0].startswith("0x"):
            continue
        start, end = int(words[0], 16), int(words[1], 16)
        offset = int(words[3], 16)
        # live: start end size offset perms file; core: start end size offset file
        live = len(words) > 4 and len(words[4]) == 4 and set(words[4]) <= set("rwxps-")
        prot = sum(bit for bit, letter in ((1, "r"), (2, "w"), (4, "x")) if letter in words[4]) if live else 5
        name = words[5] if live and len(words) > 5 else "" if live else line.split(None, 4)[4] if len(words) > 4 else ""
        number = files.setdefault(name, len(files) + 1) if name.startswith("/") else 0
        found.append((start, end, offset, prot, number, name.encode()))
    return found


class LuaBt(gdb.Command):
    """The stack of the selected thread, C and Lua in one."""

    def __init__(self):
        super().__init__("lua-bt", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        inferior, known = gdb.selected_inferior(), regions()

        def read(_, address, to, size):
            try:
                c.memmove(to, inferior.read_memory(address, size).tobytes(), size)
                return 0
            except gdb.error:
                return ERRORS

        def region(_, n, out):
            if n >= len(known):
                return ERRORS
            out[0] = Region(*known[n])
            return 0

        reader = Reader(c.sizeof(Reader), None, 0, READ(read), REGION(region), None)
        target, stack = c.c_void_p(), c.c_void_p()
        if msp.msp_target_new(None, c.byref(target)):
            raise gdb.GdbError("out of memory")
        try:
            if msp.msp_target_open_reader(target, c.byref(reader)) or msp.msp_backtrace_new(target, c.byref(stack)):
                raise gdb.GdbError(msp.msp_target_error(target).decode())
            frame, registers = gdb.newest_frame(), Registers()
            for n, name in enumerate(DWARF):
                registers.reg[n] = int(frame.read_register(name)) & (1 << 64) - 1
            registers.pc = frame.pc()
            # behind a syscall instruction, pc is like a return address
            registers.syscall = bytes(inferior.read_memory(registers.pc - 2, 2)) == b"\x0f\x05"
            msp.msp_backtrace_unwind(stack, c.byref(registers))
            self.show(stack, msp.msp_backtrace_name(stack))
        finally:
            msp.msp_backtrace_free(stack)
            msp.msp_target_free(target)

    def show(self, stack, count):
        number = 0
        for i in range(count):
            f = msp.msp_backtrace_frame(stack, i)[0]
            if f.vm:
                continue  # the interpreter itself
            name = f.name.decode(errors="replace") if f.name else "0x%x" % f.address
            where = " (%s:%d)" % (f.file.decode(errors="replace"), f.line or f.defined) if f.file else ""
            where += " in " + f.object.decode(errors="replace") if f.object else ""
            print("#%-3d %s%s" % (number, name, where))
            number += 1


LuaBt()
