#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: gc.py PROFILE. Of collector.lua's w_lists, which is compiled and allocates in node(), inlined into it.

The C function that a trace calls for a step of the collector is known from the samples with [gc] under it: all its
samples have [gc], but for its first and last instructions, and under that the whole way to w_lists.
"""
import sys

from check import read_profile

MIN_STEPS = 30     # samples
MAX_UNMARKED = 5   # percent, and two
COMPILED = ("jit", "inlined")
WAY = ["main chunk", "drive", "w_lists"]


def on_trace(frames):
    """Index behind the last Lua frame, if that is compiled code of w_lists."""
    at = max((i + 1 for i, frame in enumerate(frames) if frame.kind in COMPILED + ("lua", "fast")), default=0)
    return at if at and frames[at - 1].kind in COMPILED and any(f.name == "w_lists" for f in frames[:at]) else 0


def key(frame):
    return frame.kind, frame.object, frame.name, frame.address if not frame.name else 0


def main():
    stacks, _ = read_profile(sys.argv[1])
    steps, marked, unmarked, short = set(), 0, 0, 0
    places = [(stack, on_trace(stack.frames)) for stack in stacks]
    places = [(stack, at) for stack, at in places if at and at < len(stack.frames)]
    for stack, at in places:
        if stack.frames[at].name != "[gc]":
            continue
        marked += stack.count
        lua = [frame.name for frame in stack.frames[:at] if frame.kind in COMPILED + ("lua",)]
        short += stack.count * (lua[:3] != WAY or lua[3:] not in ([], ["node"]))
        if at + 1 < len(stack.frames):
            steps.add(key(stack.frames[at + 1]))
    for stack, at in places:
        if key(stack.frames[at]) in steps:
            unmarked += stack.count
    print("%-18s %5d steps of the collector from compiled code, %d not marked, %d not whole"
          % ("gc", marked, unmarked, short))
    if marked < MIN_STEPS or short or 100 * (unmarked - 2) > MAX_UNMARKED * (marked + unmarked):
        sys.exit("FAIL: wanted at least %d, at most %d %% of them not marked, all whole" % (MIN_STEPS, MAX_UNMARKED))


main()
