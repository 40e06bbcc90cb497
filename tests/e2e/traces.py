#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: traces.py WHAT PROGRAM JSON TEXT. Holds `moonspy traces` of traces.lua against what its lines are.

WHAT: live, core: what is compiled and what is not; sampled: with a profile; annotated: one trace's lines;
number: prints the number of the loop's trace.
"""
import json
import os
import sys

what, program, path, text_path = sys.argv[1:]
with open(path) as file:
    data = json.load(file)
with open(text_path) as file:
    text = file.read()
with open(program) as file:
    source = file.read().split("\n")
failed = False


def check(right, message):
    global failed
    if not right:
        failed = True
        print("FAIL: %s: %s" % (what, message))


def line_with(part):
    return [i + 1 for i, line in enumerate(source) if part in line][0]


def at(entries, name, line):
    return [e for e in entries if e["name"] == name and e["line"] == line]


check(data["schema"] == 1 and data["type"] == "traces" and len(data["vms"]) == 1, "not one VM")
vm = data["vms"][0]
traces, refusals = vm["traces"], vm["not_compiled"]
hot_line = line_with("local function hot") + 1
loops = [t for t in at(traces, "hot", hot_line) if t["root"] is None and t["link_type"] == "loop"]
check(len(loops) == 1, "the hot loop has %d traces" % len(loops))
if what == "number":
    print(loops[0]["number"])
    sys.exit(0)

given_up = at(refusals, "main chunk", line_with("for i = 1, 1e6"))
check(len(given_up) == 1 and given_up[0]["state"] == "given up" and given_up[0]["what"] == "loop" and
      "bytecode" in (given_up[0]["reason"] or ""), "given up: %s" % given_up)
check(refusals and refusals[0] == given_up[0], "what was given up does not come first")
tried = at(refusals, "tried", line_with("local function tried") + 1)
check(len(tried) == 1 and tried[0]["state"] == "aborted" and tried[0]["penalty"] >= 72, "aborted: %s" % tried)
off = at(refusals, "off", line_with("local function off") + 1)
check(len(off) == 1 and off[0]["state"] == "switched off" and off[0]["reason"] is None, "switched off: %s" % off)
check(not [r for r in refusals if r["name"] in ("hot", "leaf")], "what is compiled is said not to be")
sides = [t for t in traces if t["root"] == loops[0]["number"]]
check(sides and all(t["parent"] and t["exit"] is not None for t in sides), "no side trace of the hot loop")
check(vm["complete"] and vm["aborts_known"] and vm["flushed"] is None, "what is known: %s" % vm)
check(all(t["bytes"] > 0 and t["snapshots"] > 0 for t in traces), "a trace without code")
check(vm["machine_code"] == sum(t["bytes"] for t in traces), "the sum of the code")
rows = text.split("\n")
if what != "annotated":
    check("Not compiled, given up for good:" in rows[2:4], "the first thing to look at: %s" % rows[:4])
    check(sum("  root   " in r and "  loop   " in r and "hot (" in r for r in rows) == 1, "no row of the hot loop:\n" + text)
if what == "sampled":
    shares = {t["number"]: t["samples"] for t in traces}
    total = data["samples"]
    compiled = sum(t["samples"] for t in traces if t["number"] == loops[0]["number"] or t in sides)
    check(total > 0 and compiled >= 0.8 * total, "of %s samples %s in the loop: %s" % (total, compiled, shares))
    check([t["samples"] for t in traces] == sorted((t["samples"] for t in traces), reverse=True), "not by samples")
    check(data["samples_of_other_traces"] <= 0.1 * total, "samples of others: %s" % data["samples_of_other_traces"])
if what == "annotated":
    loop = loops[0]
    lines = {l["line"] for l in loop.get("lines", [])}
    check(hot_line in lines, "lines %s without that of the loop" % sorted(lines))
    check(any("for i = 1, n do" in r and str(hot_line) in r.split() for r in rows), "no source:\n" + text)
    check(not any("whose source is not there" in r for r in rows), "the source was not found")
if not failed:
    print("%s: %d traces, %d not compiled" % (what, len(traces), len(refusals)))
sys.exit(failed)
