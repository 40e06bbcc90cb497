#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Is what `moonspy core -j` printed of a crash what it must be?

    core_crash.py NAME STATUS JSON STDERR TRACES
TRACES: what `moonspy traces -j` printed of it.
"""
import json
import os
import re
import sys

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../workloads/cores/crash.lua")

# The crashed thread's frames, leaf first, as "kind name"; others may stand between them.
OUTER = ["lua middle", "lua outer", "lua main chunk", "native run", "native main", "native _start"]
STACKS = {
    "vm-nojit": ["lua places.vm"], "vm-jit": ["lua places.vm"],
    "trace-nojit": ["fast ffi:__index", "lua places.trace"], "trace-jit": ["jit places.trace"],
    "helper-nojit": ["native .*memcpy.*|native .*memmove.*", "fast ffi.copy", "lua places.helper"],
    "helper-jit": ["native .*memcpy.*|native .*memmove.*", "jit places.helper"],
    "gc-nojit": ["native lua_gc", "state .gc.", "fast collectgarbage", "lua places.gc"],
    "gc-jit": ["native lua_gc", "state .gc.", "fast collectgarbage", "lua places.gc"],
    # A step of the collector, in the middle of whatever allocates.
    "gcstep-nojit": ["native lj_gc_.*|state .gc.|native libluajit.*", "lua places.gcstep"],
    "gcstep-jit": ["native lj_gc_.*|state .gc.|native libluajit.*", "jit places.gcstep"],
    "handler-vm-jit": ["native abort", "native handler", "lua places.vm"],
    "handler-trace-jit": ["native abort", "native handler", "jit places.trace"],
    # A null pointer was called: its caller is known by the return address.
    "null-nojit": ["native None", "fast ffi:__call", "lua places.null"],
    "null-jit": ["native None", "jit places.null"],
    # a tail call: its own frame is gone
    "ffi-nojit": ["native .*strlen.*", "fast ffi:__call"], "ffi-jit": ["native .*strlen.*", "fast ffi:__call"],
    "callback-nojit": ["native crash_abort", "lua compare", "native qsort.*", "fast ffi:__call", "lua places.callback"],
    "callback-jit": ["native crash_abort", "lua compare", "native qsort.*", "fast ffi:__call", "lua places.callback"],
    "cfunction-nojit": ["native crash_abort", "lua places.cfunction"],
    "cfunction-jit": ["native crash_abort", "lua places.cfunction"],
    "coroutine-nojit": ["native crash_abort"] + ["lua inside"] * 4 + ["fast coroutine.wrap_aux", "lua places.coroutine"],
    "coroutine-jit": ["native crash_abort"] + ["lua inside"] * 4 + ["fast coroutine.wrap_aux", "lua places.coroutine"],
    "nested-nojit": ["native crash_abort", "lua places.cfunction", *OUTER[:4], "native crash_nested", "lua places.nested"],
    "nested-jit": ["native crash_abort", "lua places.cfunction", *OUTER[:4], "native crash_nested", "lua places.nested"],
    "threads-nojit": ["native crash_abort", "lua places.cfunction"],
    "threads-jit": ["native crash_abort", "lua places.cfunction"],
}
VMS = {"nested-nojit": 2, "nested-jit": 2, "threads-nojit": 2, "threads-jit": 2}
problems = []


def wrong(text):
    problems.append(text)


def bare(name):
    """qemu:vm-nojit is vm-nojit in a core that qemu wrote, which has no siginfo."""
    return name.rpartition(":")[2]


def matches(frames, wanted):
    """All of wanted, in that order."""
    at = 0
    for frame in frames:
        text = f"{frame['kind']} {frame['name']}"
        if at < len(wanted) and re.fullmatch(wanted[at], text):
            at += 1
    return at == len(wanted)


def thread_leaf(dump):
    return dump["threads"][0]["stack"][0]


def waiting_line():
    with open(PROGRAM, encoding="utf-8") as f:
        return [i + 1 for i, line in enumerate(f) if "coroutine.create(function(name)" in line][0]


def check_coroutines(name, dump):
    """The three that wait are there, whatever happened to the stacks of threads."""
    where = waiting_line()
    waiting = [c for c in dump["coroutines"] if c["status"] == "suspended"]
    if len(waiting) != 3 * VMS.get(name, 1) or not dump["coroutines_complete"]:
        wrong(f"{len(waiting)} coroutines wait")
    for c in waiting:
        frames = [f"{f['kind']} {f['name']}" for f in c["stack"]]
        if frames != ["fast coroutine.yield", "lua anonymous"] or c["stack"][1]["line"] != where or c["error"]:
            wrong(f"a waiting coroutine has the frames {frames}")
        elif [v["value"]["value"][:4] for v in c["stack"][1]["locals"]] != ["job "]:
            wrong(f"its locals are {c['stack'][1]['locals']}")
    main = [c for c in dump["coroutines"] if c["main"]]
    place = name.partition("-")[0]
    if place in ("smash_c", "deep") and not matches(main[0]["stack"], ["lua places." + place, *OUTER[:3]]):
        wrong(f"the main coroutine: {main}")


def check_whole(name, dump, status):
    thread = dump["threads"][0]
    check_coroutines(name, dump)
    if status != 0:
        wrong(f"exit status {status}")
    if dump["gaps"]:
        wrong(f"gaps {dump['gaps']}")
    if not thread["whole"]:
        wrong(f"not whole: {thread['error']}")
    if not matches(thread["stack"], STACKS[name] + OUTER):
        wrong("not these frames: " + "; ".join(STACKS[name] + OUTER))
    if len(dump["vms"]) != VMS.get(name, 1) or not all(vm["proved"] for vm in dump["vms"]):
        wrong(f"VMs {dump['vms']}")
    if "threads" in name and not matches(dump["threads"][1]["stack"],
                                         ["native .*", "(lua|jit) places.sleep", *OUTER[:4], "native other"]):
        wrong("the second thread's frames")


def check_traces(name, dump, text):
    """The trace that crashed is in the list; without the compiler there is none. A broken stack hurts none of it."""
    if not [vm for vm in dump["vms"] if vm["proved"]] and not text:
        return
    traces = [trace for vm in json.loads(text)["vms"] for trace in vm["traces"]]
    place, _, mode = name.rpartition("-")
    if mode == "nojit" and traces:
        wrong(f"traces without the compiler: {traces}")
    if place in ("trace", "helper", "gcstep") and mode == "jit":
        numbers = {f["trace"] for f in dump["threads"][0]["stack"] if f["kind"] == "jit"}
        found = {t["number"] for t in traces if t["name"] == "places." + place}
        if not numbers or not numbers <= found:
            wrong(f"it crashed in trace {numbers}, of its function there are {found}")


def check_partial(name, dump, status):
    """What is missing is named, and all that is there is shown."""
    thread = dump["threads"][0]
    stack = thread["stack"]
    gaps = {gap["kind"] for gap in dump["gaps"]}
    if status != 4:
        wrong(f"exit status {status}, not 4")
    if name.startswith("smash"):
        check_coroutines(name, dump)
        if thread["whole"] or stack[-1]["kind"] != "error":
            wrong("a smashed stack is whole")
        if name.startswith("smash_lua") and not matches(stack, ["native crash_smash_lua"]):
            wrong("the C frames above the smashed Lua stack")
    elif name.startswith("deep"):
        check_coroutines(name, dump)
        if thread["error"] != "truncated" or len(stack) != 1024 or {f["name"] for f in stack[:-1]} != {"crash_deep"}:
            wrong(f"not the {len(stack)} innermost frames: {thread['error']}")
    elif name == "no-luajit":
        if gaps != {"file"} or not any("libluajiX" in g["name"] for g in dump["gaps"]) or dump["vms"]:
            wrong(f"gaps {dump['gaps']}, VMs {dump['vms']}")
        if thread["whole"] or stack[-1]["kind"] != "error" or not matches(stack, ["native .*"]):
            wrong("a stack through a LuaJIT that is missing is whole")
    elif name == "cut":
        if "memory" not in gaps:
            wrong(f"gaps {gaps}")
    elif name == "full-no-exe":
        if gaps != {"file"} or not thread["whole"] or not matches(stack, STACKS["vm-nojit"] + OUTER[:3]):
            wrong("all pages are there, but not all frames")
    else:
        if gaps != {"file"} or not matches(stack, STACKS["vm-nojit"] + OUTER[:3]):
            wrong("the Lua frames are not there")
        if not any(f["object"] == "crash" and f["address"] for f in stack):
            wrong("no frame of the missing file as object and offset")


def main():
    name, status, path, errors, traces = sys.argv[1], int(sys.argv[2]), *sys.argv[3:6]
    with open(path, encoding="utf-8") as f:
        text = f.read()
    with open(errors, encoding="utf-8") as f:
        said = f.read()
    try:
        dump = json.loads(text)
    except ValueError:
        print(f"FAIL: {name}: no JSON, exit status {status}\n{said}")
        return 1
    signal = dump["signal"]
    qemu, name = name.startswith("qemu:"), bare(name)
    wanted = "SIGABRT" if name.startswith("handler") else "SIGSEGV"
    if dump["schema"] != 1 or dump["type"] != "core":
        wrong("schema")
    if name not in ("cut",) or signal:
        if signal["name"] != wanted or signal["tid"] != dump["threads"][0]["tid"]:
            wrong(f"signal {signal}")
    if name in STACKS:
        if name.startswith("null") and (thread_leaf(dump)["address"], signal["address"]) != (None, "0x0"):
            wrong(f"leaf {thread_leaf(dump)}")
        if bool(signal["address"]) != (wanted == "SIGSEGV" and not qemu):
            wrong(f"faulting address {signal['address']}")
        check_whole(name, dump, status)
    elif dump["threads"]:
        check_partial(name, dump, status)
    elif status != 4:
        wrong(f"exit status {status}, not 4")
    with open(traces, encoding="utf-8") as f:
        check_traces(name, dump, f.read())
    if not problems:
        return 0
    print(f"FAIL: {name}: " + "\n    ".join(problems))
    for frame in dump["threads"][0]["stack"][:30] if dump["threads"] else []:
        print(f"        {frame['kind']} {frame['name']} {frame['object']} {frame['address']}")
    print(said)
    return 1


if __name__ == "__main__":
    sys.exit(main())
