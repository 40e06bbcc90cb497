#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: constants.py LIBRARY KIT-CONSTANTS... The descriptor's constants against the debug information of the same build.

It was built with macros in it (gcc -g3, clang -fdebug-macro), or they are in the file that MACROS in the environment names.
What is -1 must not be there. On x86-64 the interpreter's CFI tells the size of the C frame too; arm64's CFI goes by the frame
pointer."""
import os
import re
import subprocess
import sys

STRUCTS = {"g": "global_State", "L": "lua_State", "J": "jit_State", "pt": "GCproto", "T": "GCtrace", "snap": "SnapShot",
           "fn": "GCfuncC", "str": "GCstr", "gc": "GChead"}
MEMBERS = {"g_gc_state": "gc.state", "g_gc_total": "gc.total", "g_gc_root": "gc.root", "fn_cfunc": "f", "gc_next": "nextgc"}
SIZES = {"gg_size": "GG_State", "g_size": "global_State", "L_size": "lua_State", "pt_size": "GCproto", "T_size": "GCtrace",
         "snap_size": "SnapShot", "tv_size": "TValue", "bc_size": "BCIns", "str_data": "GCstr", "mcode_unit": "MCode",
         "cf_ref_size": "GCRef"}
VALUES = {"vmstate_gc": "LJ_VMST_GC", "bc_funcf": "BC_FUNCF", "bc_funcc": "BC_FUNCC", "bc_funccw": "BC_FUNCCW",
          "frame_c": "FRAME_C", "frame_lua": "FRAME_LUA",
          "frame_cont": "FRAME_CONT", "frame_varg": "FRAME_VARG", "frame_cp": "FRAME_CP", "frame_pcall": "FRAME_PCALL",
          "frame_pcallh": "FRAME_PCALLH", "ff_c": "FF_C", "gg_g": "(long)&((GG_State *)0)->g",
          "g_J": "(long)&((GG_State *)0)->J - (long)&((GG_State *)0)->g",
          "g_dispatch": "(long)&((GG_State *)0)->dispatch - (long)&((GG_State *)0)->g",
          "cf_prev_size": "sizeof(((lua_State *)0)->cframe)", "T_nsnapmap_size": "sizeof(((GCtrace *)0)->nsnapmap)",
          "snap_mapofs_size": "sizeof(((SnapShot *)0)->mapofs)"}
REGISTERS = {"reg_dispatch": ("RID_DISPATCH", "RID_GL"), "reg_base": ("RID_BASE",) * 2, "reg_pc": ("RID_LPC",) * 2,
             "reg_L": ("RID_LREG",) * 2}
# By the number that x86-64's instructions give to a register.
DWARF = [0, 2, 1, 3, 7, 6, 4, 5, *range(8, 16)]
MACROS = {"gc64": "LJ_GC64", "fr2": "LJ_FR2", "jit": "LJ_HASJIT", "ffi": "LJ_HASFFI", "dualnum": "LJ_DUALNUM",
          "version": "LUAJIT_VERSION_NUM", "cf_size": "CFRAME_SIZE", "cf_L": "CFRAME_OFS_L", "cf_PC": "CFRAME_OFS_PC",
          "cf_prev": "CFRAME_OFS_PREV", "cf_errf": "CFRAME_OFS_ERRF", "cf_nres": "CFRAME_OFS_NRES",
          "arch": "LUAJIT_TARGET == LUAJIT_ARCH_X64 ? 1 : LUAJIT_TARGET == LUAJIT_ARCH_ARM64 ? 2 : 0",
          "dispatch_entries": "GG_LEN_DISP", "gct_str": "(unsigned char)~LJ_TSTR", "gct_thread": "(unsigned char)~LJ_TTHREAD",
          "gct_proto": "(unsigned char)~LJ_TPROTO", "gct_func": "(unsigned char)~LJ_TFUNC",
          "gct_trace": "(unsigned char)~LJ_TTRACE", "tv_func": "(int)LJ_TFUNC", "cframe_flags": "~CFRAME_RAWMASK",
          "frame_typep": "FRAME_TYPEP", "frame_type": "FRAME_TYPE", "ir_bias": "REF_BASE"}
TAG = "macro expand itype(slot)"
# A function whose file sees all of these headers.
SCOPE = ["-ex", "list lj_dispatch_update", "-ex", "macro define offsetof(type, member) ((long)&((type *)0)->member)"]


def expression(name, arm64):
    if name in MACROS:
        return MACROS[name]
    if name in REGISTERS:
        return REGISTERS[name][arm64]
    if name == "reg_dispatch_g":
        return "0" if arm64 else "GG_G2DISP"
    if name in SIZES:
        return "sizeof(%s)" % SIZES[name]
    if name in VALUES:
        return VALUES[name]
    prefix, _, member = name.partition("_")
    return "&((%s *)0)->%s" % (STRUCTS[prefix], MEMBERS.get(name, member))


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def debug_information(library, names, arm64):
    """Of each name the value, or nothing; and all that gdb said."""
    command = ["gdb", "-nx", "-batch", library, *SCOPE]
    for name in names:
        command += ["-ex", "printf \"%s %%ld\\n\", (long)(%s)" % (name, expression(name, arm64))]
    out = run(*command, "-ex", TAG)
    return {name: int(value) for name, value in re.findall(r"^(\w+) (-?\d+)$", out, re.M)}, out


def all_known(library, said, arm64):
    names = [name for name in said if name != "tv_shift"]
    known, out = debug_information(library, names, arm64)
    if os.path.exists(os.environ.get("MACROS", "")):
        more, out = debug_information(os.environ["MACROS"], [name for name in names if name not in known], arm64)
        known.update(more)
    for name in REGISTERS:
        if name in known and not arm64:
            known[name] = DWARF[known[name] % len(DWARF)]
    shift = re.search(r"expands to: .*it64 >> (\d+)", out)
    known["tv_shift"] = int(shift.group(1)) if shift and known.get("gc64") else -1
    return known, out


def frame_by_cfi(library):
    """The frame sizes that the unwind rules of the interpreter's code end with."""
    begin = int(re.search(r"^(\w+) \w lj_vm_asm_begin$", run("nm", library), re.M).group(1), 16)
    rules = re.search(r"pc=0*%x\.\..*?\n\n" % begin, run("readelf", "--debug-dump=frames", library), re.S)
    return {int(size) for size in re.findall(r"DW_CFA_def_cfa_offset: (\d+)", rules.group() if rules else "")}


def main():
    library = sys.argv[1]
    said = {name: int(value) for name, value in map(str.split, run(*sys.argv[2:], library).splitlines())}
    arm64 = said["arch"] == 2
    known, out = all_known(library, said, arm64)
    wrong = []
    for name in said:
        # Without a compiler its structures may still be declared.
        if said[name] != known.get(name, -1) and not (said[name] == -1 and not said["jit"]):
            wrong.append("%s is %d, the debug information says %s" % (name, said[name], known.get(name, "nothing")))
    if not arm64 and said["cf_size"] not in frame_by_cfi(library):
        wrong.append("cf_size is %d, by CFI %s" % (said["cf_size"], sorted(frame_by_cfi(library))))
    print("constants: %d compared with the debug information, %d wrong" % (len(said), len(wrong)))
    if wrong:
        sys.exit("\n".join(wrong + [line for line in out.splitlines() if "rror" in line or "No " in line][:5]))


if __name__ == "__main__":
    main()
