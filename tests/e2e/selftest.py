#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A checker that cannot fail is worth nothing: check.py must accept a good
profile and refuse each of a list of broken ones, for the right reason.

usage: selftest.py    (runs in tests/e2e, needs nothing but python3)
"""
import contextlib
import copy
import io
import json
import os
import sys
import tempfile

import check

HERE = os.path.dirname(os.path.abspath(__file__))
WORKLOADS = os.path.join(HERE, "..", "workloads")
GRAPH = os.path.join(WORKLOADS, "truth.graph")


def line_of(file, text):
    with open(os.path.join(WORKLOADS, file)) as source:
        for number, line in enumerate(source, 1):
            if text in line:
                return number
    raise KeyError(text)


def native(address, symbol=None, object="luajit"):
    return {"kind": "native", "name": symbol, "object": object, "address": address}


def lua(name, file="truth.lua", kind="lua"):
    defined = 0 if name == "main chunk" else line_of(file, "function %s(" % name)
    return {"kind": kind, "name": name, "file": "tests/workloads/" + file, "defined": defined,
            "line": defined or 20, "certain": True}


def fast(name):
    return {"kind": "fast", "name": name}


ROOT = [native(0x5000), native(0x27300, "__libc_start_main", "libc.so.6"),
        native(0x271ca, None, "libc.so.6"), native(0x4f00), native(0x8000, "lua_cpcall"), native(0x4e00),
        native(0x8100, "lua_pcall")]
BASE = ROOT + [lua("main chunk"), lua("drive", "drive.lua")]
CHAIN = [fast("coroutine.resume"), lua("outer_body"), fast("coroutine.resume"), lua("middle_body"),
         fast("coroutine.resume"), lua("inner_body")]


def good():
    """A profile of truth.lua as it should be."""
    stacks = [
        (BASE + [lua("w_recursion")] + [lua("fib")] * 12, 200),
        (BASE + [lua("w_recursion"), lua("fib", kind="jit")], 50),
        (BASE + [lua("w_sort"), fast("table.sort"), native(0x7000), native(0x8200, "lua_call"),
                 lua("smaller")], 200),
        (BASE + [lua("w_gsub"), fast("string.gsub"), native(0x7100), native(0x8200, "lua_call"),
                 lua("swap")], 200),
        (BASE + [lua("w_resume")] + CHAIN + [lua("spin")], 200),
        (BASE + [lua("w_operators"), lua("operate"), lua("on_concat"), native(0x9000)], 150),
        (BASE + [lua("w_pcall"), fast("xpcall"), lua("risky"), fast("error"), native(0x9100),
                 lua("handler")], 98),
        (BASE + [lua("w_tables"), lua("shuffle_in"), fast("table.insert"), native(0x9200),
                 {"kind": "kernel", "name": "asm_exc_page_fault"}], 100),
        (BASE + [lua("w_tree"), lua("grow"), native(0x9300), {"kind": "state", "name": "[gc]"}], 100),
        (ROOT[:4], 1),
        ([{"kind": "error", "name": "[error: stack unreadable]"}, lua("w_tree"), lua("grow")], 1),
    ]
    samples = sum(count for _, count in stacks)
    quality = {"samples": samples, "lost": 0, "whole": samples - 1, "truncated": 0,
               "errors": {"stack unreadable": 1}, "estimated": 0, "seconds": 1.3, "rate": 999,
               "bpf_ns_per_sample": 8000}
    return {"schema": 1, "quality": quality,
            "stacks": [{"frames": copy.deepcopy(frames), "count": count, "pid": 1, "tid": 1}
                       for frames, count in stacks]}


TRUTH = {"w_recursion": 250, "w_sort": 200, "w_gsub": 200, "w_resume": 200, "w_operators": 150, "w_pcall": 98,
         "w_tables": 100, "w_tree": 101}


def frames(profile, name):
    """The frames of the first stack that holds NAME."""
    return next(stack["frames"] for stack in profile["stacks"]
                if any(frame.get("name") == name for frame in stack["frames"]))


def index(stack, name):
    return next(i for i, frame in enumerate(stack) if frame.get("name") == name)


def drop(name, inside, count=1):
    def change(profile):
        stack = frames(profile, inside)
        at = index(stack, name)
        del stack[at:at + count]
    return change


def swap_order(first, inside):
    def change(profile):
        stack = frames(profile, inside)
        at = index(stack, first)
        stack[at], stack[at + 1] = stack[at + 1], stack[at]
    return change


def insert(frame, before):
    def change(profile):
        stack = frames(profile, before)
        stack.insert(index(stack, before), copy.deepcopy(frame))
    return change


def edit(inside, **values):
    def change(profile):
        stack = frames(profile, inside)
        stack[index(stack, inside)].update(values)
    return change


def duplicate_group(profile):
    stack = frames(profile, "inner_body")
    at = index(stack, "middle_body")
    stack[at + 1:at + 1] = copy.deepcopy(stack[at - 1:at + 1])


def quality(**values):
    return lambda profile: profile["quality"].update(values)


def cut_root(profile):
    for stack in profile["stacks"]:
        if any(frame.get("name") == "swap" for frame in stack["frames"]):
            del stack["frames"][:2]


def many_broken(profile):
    stack = {"frames": [{"kind": "error", "name": "[truncated]"}, lua("spin")], "count": 20}
    profile["stacks"].append(stack)
    profile["quality"].update(samples=profile["quality"]["samples"] + 20, truncated=20)


def move_share(profile):
    profile["stacks"][0]["count"] -= 40
    profile["stacks"][2]["count"] += 40


def lose_callee(profile):
    for stack in profile["stacks"]:
        if stack["frames"][-1].get("name") == "smaller":
            del stack["frames"][-3:]


def drop_boundary(profile):
    stack = frames(profile, "smaller")
    at = index(stack, "table.sort")
    del stack[at + 1:at + 3]


def lose_lua(profile):
    profile["stacks"][-2]["count"] += 20
    profile["quality"].update(samples=profile["quality"]["samples"] + 20, whole=profile["quality"]["whole"] + 20)


# name, change, part of the expected complaint
BROKEN = [
    ("no first native frame", drop(None, "swap"), "not a legal root"),
    ("root of another stack", cut_root, "not a legal root"),
    ("no main chunk", drop("main chunk", "on_concat"), "is no entry"),
    ("a caller missing", drop("operate", "on_concat"), "does not call"),
    ("a fast function missing", drop("table.sort", "smaller"), "does not call"),
    ("callers in false order", swap_order("w_operators", "on_concat"), "does not call"),
    ("a frame twice", insert(lua("w_sort"), "table.sort"), "w_sort does not call w_sort"),
    ("a coroutine group twice", duplicate_group, "not 3..3"),
    ("a coroutine group missing", drop("middle_body", "spin", 2), "not 3..3"),
    ("native frames missing", drop_boundary, "no native frames between"),
    ("native frames inside the VM", insert(native(0x1234), "on_concat"), "native frames between"),
    ("kernel frame inside", insert({"kind": "kernel", "name": "x"}, "swap"), "inside the stack"),
    ("state frame inside", insert({"kind": "state", "name": "[jit compiler]"}, "swap"), "[jit compiler] calls"),
    ("error frame inside", insert({"kind": "error", "name": "[error: x]"}, "swap"), "inside the stack"),
    ("wrong line of definition", edit("swap", defined=3), "no function is defined at"),
    ("wrong name", edit("swap", name="swapp"), "defines swap"),
    ("another function's line", edit("on_concat", defined=line_of("truth.lua", "function on_call(")), "defines"),
    ("current line out of range", edit("on_concat", line=1), "outside"),
    ("too deep", lambda p: frames(p, "fib").extend([lua("fib")] * 9), "at most 15"),
    ("stacks cut at the root in silence", drop("main chunk", "on_concat", 2), "is no entry"),
    ("callee lost", lose_callee, "own share of table.sort"),
    ("Lua part lost", lose_lua, "without Lua frames"),
    ("too many not whole", many_broken, "whole stacks"),
    ("wrong shares", move_share, "distance from truth"),
    ("whole miscounted", quality(whole=1), "whole as counted"),
    ("samples miscounted", quality(samples=9999), "stacks and samples agree"),
    ("reasons miscounted", quality(errors={}), "reasons add up"),
    ("other schema", lambda p: p.update(schema=2), "schema"),
    ("unknown kind", edit("swap", kind="luaa"), "unknown frame kind"),
    ("no quality", lambda p: p.pop("quality"), "no quality"),
    ("no stacks", lambda p: p.update(stacks=[]), "samples"),
    ("empty stack", lambda p: p["stacks"].append({"frames": [], "count": 1}), "without frames"),
]


def outcome(text, *options):
    with tempfile.TemporaryDirectory() as folder:
        profile, truth = os.path.join(folder, "p"), os.path.join(folder, "truth")
        with open(profile, "w") as file:
            file.write(text)
        with open(truth, "w") as file:
            file.writelines("truth %s %s\n" % item for item in TRUTH.items())
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = check.main([profile, "--graph", GRAPH, "--truth", truth, "--figures", "figures"] +
                                list(options))
        return status, out.getvalue()


def to_folded(profile):
    stacks, _ = check.read_json(profile)
    return "".join("%s %d\n" % (";".join(f.text() for f in s.frames), s.count) for s in stacks)


def main():
    failed = 0
    cases = [("good json", json.dumps(good()), 0, ""), ("good folded", to_folded(good()), 0, ""),
             ("cut json", json.dumps(good())[:-40], 2, "broken profile"),
             ("folded without counts", "a;b;c\n", 2, "frames count"), ("empty file", "", 1, "samples")]
    for name, change, complaint in BROKEN:
        profile = good()
        change(profile)
        cases.append((name, json.dumps(profile), (1, 2), complaint))
    for name, text, wanted, complaint in cases:
        status, out = outcome(text)
        if status not in (wanted if isinstance(wanted, tuple) else (wanted,)) or complaint not in out:
            failed += 1
            print("FAIL %s: status %d, wanted %s with `%s`\n%s" % (name, status, wanted, complaint, out))
    failed += text_rules() + start_rules()
    print("%d checks of the checker, %d failed" % (len(cases) + 8, failed))
    return 1 if failed else 0


def with_marks(reason, count):
    profile = good()
    profile["quality"]["samples"] += count
    profile["quality"]["errors"][reason] = count
    profile["stacks"].append({"frames": [{"kind": "error", "name": "[error: %s]" % reason}], "count": count})
    return json.dumps(profile)


def start_rules():
    failed = 0
    for reason, count, wanted in (("process not known yet", 10, 0), ("pc in no known mapping", 10, 0),
                                  ("process not known yet", 20, 1), ("no unwind rule", 10, 1)):
        status, out = outcome(with_marks(reason, count), "--max-tv", "50")
        if status != wanted:
            failed += 1
            print("FAIL %d x %s: status %d\n%s" % (count, reason, status, out))
    return failed


def text_rules():
    failed = 0
    for options, wanted in ((("--contains", "w_sort.*smaller=10"), 0), (("--contains", "no_such_thing"), 1),
                            (("--lacks", "no_such_thing"), 0), (("--lacks", "smaller"), 1)):
        status, out = outcome(json.dumps(good()), *options)
        if status != wanted:
            failed += 1
            print("FAIL %s: status %d\n%s" % (options, status, out))
    return failed


if __name__ == "__main__":
    sys.exit(main())
