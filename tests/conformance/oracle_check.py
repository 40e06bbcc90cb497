#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the distinct stacks that the oracle has seen against the workload's call graph.

usage: oracle_check.py STACKS GRAPH [jit]
exit status: 0 all are legal, 1 not
"""
import collections
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from callgraph import Graph  # noqa: E402
from check import Checker, read_profile  # noqa: E402


def main(argv):
    stacks, _ = read_profile(argv[1])
    checker = Checker(Graph(argv[2]), inlined_hidden=len(argv) > 3 and argv[3] == "jit")
    faults, first = collections.Counter(), {}
    for stack in stacks:
        why = checker.fault(stack)
        for name in {checker.name(frame)[1] for frame in stack.frames if frame.kind in ("lua", "jit")}:
            why = why or name
        if why:
            faults[why] += 1
            first.setdefault(why, stack)
    for why, count in faults.most_common(20):
        print("illegal x%d: %s" % (count, why))
        print("    " + ";".join(frame.text() for frame in first[why].frames))
    print("    %d distinct stacks, %d illegal" % (len(stacks), sum(faults.values())))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
