#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: apply.py SRC. Adds truth_record.c to a LuaJIT source tree's src folder.

Each edit must find its place exactly once, or nothing is changed.
"""
import os
import sys

DECLARE = """
void msp_truth_begin(void);
void msp_truth_at(jit_State *J);
void msp_truth_returned(GCproto *pt, const BCIns *pc);
void msp_truth_emit(unsigned int ref);
void msp_truth_like(unsigned int ref);
void msp_truth_assemble(void);
void msp_truth_code(unsigned int ref, MCode *start, MCode *end);
void msp_truth_stop(GCtrace *T);
"""

# file, place, what goes there ({}: the place itself)
EDITS = [
    ("lj_jit.h", "#endif\n\0", DECLARE + "\n{}"),
    ("lj_record.c", "  /* Initialize state related to current trace. */\n", "  msp_truth_begin();\n{}"),
    ("lj_record.c", "  /* Record only closed loops for root traces. */\n", "  msp_truth_at(J);\n{}"),
    ("lj_record.c", "    emitir(IRTG(IR_RETF, IRT_PGC), trpt, trpc);\n",
     "{}    msp_truth_returned(pt, frame_pc(frame));\n"),
    ("lj_iropt.h", "  J->cur.nins = ref + 1;\n", "{}  msp_truth_emit(ref);\n"),
    ("lj_opt_loop.c", "    /* Substitute instruction operands. */\n", "    msp_truth_like(ins);\n{}"),
    ("lj_asm.c", "    /* Assemble a trace in linear backwards order. */\n", "    msp_truth_assemble();\n{}"),
    ("lj_asm.c", "      if (!ra_used(ir) && !ir_sideeff(ir) && (as->flags & JIT_F_OPT_DCE))\n", "      MCode *msp_end = as->mcp;\n{}"),
    ("lj_asm.c", "      checkmclim(as);\n      asm_ir(as, ir);\n",
     "{}      msp_truth_code((unsigned int)(ir - as->ir), as->mcp, msp_end);\n"),
    ("lj_trace.c", "  trace_save(J, T);\n", "{}  msp_truth_stop(T);\n"),
    ("lj_trace.c", "\0", "\n#include \"truth_record.c\"\n"),
]


def main():
    folder = sys.argv[1]
    texts = {}
    for name, place, new in EDITS:
        path = os.path.join(folder, name)
        if name not in texts:
            with open(path) as file:
                texts[name] = file.read() + "\0"
        found = texts[name].count(place)
        if found != 1:
            sys.exit("%s: %d places with %r" % (path, found, place))
        texts[name] = texts[name].replace(place, new.replace("{}", place.rstrip("\0")) +
                                          ("\0" if place.endswith("\0") else ""))
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "truth_record.c")) as file:
        texts["truth_record.c"] = file.read()
    for name, text in texts.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(text.rstrip("\0"))


main()
