#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: constants.py LIBRARY KIT-CONSTANTS... The descriptor's constants against the debug information of the same build."""
import re
import subprocess
import sys

STRUCTS = {"g": "global_State", "L": "lua_State", "J": "jit_State", "pt": "GCproto", "T": "GCtrace", "snap": "SnapShot",
           "fn": "GCfuncC", "str": "GCstr", "gc": "GChead"}
MEMBERS = {"g_gc_state": "gc.state", "g_gc_total": "gc.total", "g_gc_root": "gc.root", "fn_cfunc": "f", "gc_next": "nextgc"}
SIZES = {"gg_size": "GG_State", "g_size": "global_State", "L_size": "lua_State", "pt_size": "GCproto", "T_size": "GCtrace",
         "snap_size": "SnapShot", "tv_size": "TValue", "bc_size": "BCIns", "str_data": "GCstr", "mcode_unit": "MCode"}
VALUES = {"vmstate_gc": "LJ_VMST_GC", "bc_funcf": "BC_FUNCF", "bc_funcc": "BC_FUNCC", "bc_funccw": "BC_FUNCCW",
          "frame_c": "FRAME_C", "frame_lua": "FRAME_LUA",
          "frame_cont": "FRAME_CONT", "frame_varg": "FRAME_VARG", "frame_cp": "FRAME_CP", "frame_pcall": "FRAME_PCALL",
          "frame_pcallh": "FRAME_PCALLH", "gg_g": "(long)&((GG_State *)0)->g",
          "g_J": "(long)&((GG_State *)0)->J - (long)&((GG_State *)0)->g",
          "g_dispatch": "(long)&((GG_State *)0)->dispatch - (long)&((GG_State *)0)->g",
          "T_nsnapmap_size": "sizeof(((GCtrace *)0)->nsnapmap)", "snap_mapofs_size": "sizeof(((SnapShot *)0)->mapofs)"}


def expression(name):
    if name in SIZES:
        return "sizeof(%s)" % SIZES[name]
    if name in VALUES:
        return "(long)(%s)" % VALUES[name]
    prefix, _, member = name.partition("_")
    if prefix in STRUCTS:
        return "(long)&((%s *)0)->%s" % (STRUCTS[prefix], MEMBERS.get(name, member))
    return None


def main():
    library = sys.argv[1]
    said = dict(line.split() for line in subprocess.run([*sys.argv[2:], library], stdout=subprocess.PIPE, text=True,
                                                        check=True).stdout.splitlines())
    asked = [name for name, value in said.items() if value != "-1" and expression(name)]
    command = ["gdb", "-nx", "-batch", library]
    for name in asked:
        command += ["-ex", "printf \"%s %%ld\\n\", (long)(%s)" % (name, expression(name))]
    out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    known = dict(re.findall(r"^(\w+) (-?\d+)$", out, re.M))
    wrong = ["%s is %s, the debug information says %s" % (name, said[name], known.get(name, "nothing")) for name in asked
             if known.get(name) != said[name]]
    print("constants: %d of %d compared with the debug information, %d wrong" % (len(asked), len(said), len(wrong)))
    if wrong or len(asked) < (85 if said["jit"] == "1" else 55):
        sys.exit("\n".join(wrong + [line for line in out.splitlines() if "rror" in line or "No " in line][:5]))


main()
