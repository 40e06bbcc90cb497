#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A core cut off in the middle, at many places: what is shown of it is true, and what is missing is named.

    core_cut.py MOONSPY CORE [PLACES]
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile


def show(moonspy, core):
    run = subprocess.run([moonspy, "core", "-j", "-c", core], capture_output=True, text=True, timeout=60, check=False)
    return run.returncode, run.stdout, run.stderr


def frames(dump):
    """Each thread's frames, outermost first, without an error at their end."""
    return {t["tid"]: [(f["kind"], f["name"], f["line"]) for f in t["stack"] if f["kind"] != "error"]
            for t in dump["threads"]}


def coroutines(dump):
    """Of those that are whole, and do not run: all frames."""
    return {c["address"]: [(f["kind"], f["name"], f["line"]) for f in c["stack"]] for c in dump["coroutines"]
            if not c["stale"] and not c["error"]}


def problem(status, out, err, whole, waiting, headers):
    """What is wrong with the answer; None: nothing."""
    if status == 1:
        return None if headers and "ends within" in err else f"it failed: {err}"
    if status != 4:
        return f"exit status {status}, not 4"
    dump = json.loads(out)
    if "memory" not in {gap["kind"] for gap in dump["gaps"]} and dump["threads"]:
        return f"gaps {dump['gaps']}"
    if not dump["threads"] and "notes" not in {gap["kind"] for gap in dump["gaps"]}:
        return "no thread, and nothing about notes"
    for tid, stack in frames(dump).items():
        if dump["vms"] and all(vm["proved"] for vm in dump["vms"]) and stack != whole[tid][:len(stack)]:
            return f"frames {stack} are not the beginning of {whole[tid]}"
        thread = [t for t in dump["threads"] if t["tid"] == tid][0]
        if thread["whole"] and stack != whole[tid]:
            return f"a stack that lacks frames is called whole: {stack}"
    for address, stack in coroutines(dump).items():
        if stack != waiting.get(address):
            return f"coroutine {address}: {stack}"
    return None


def main():
    moonspy, core = sys.argv[1:3]
    places = int(sys.argv[3]) if len(sys.argv) > 3 else 40
    seed = int(os.environ.get("SEED", "1"))
    status, out, err = show(moonspy, core)
    if status:
        print(f"FAIL: the whole core: exit status {status}: {err}")
        return 1
    whole, waiting = frames(json.loads(out)), coroutines(json.loads(out))
    with open(core, "rb") as f:
        data = f.read()
    phoff, phnum = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    headers = phoff + 56 * phnum
    segments = [struct.unpack_from("<IIQQQQQQ", data, phoff + 56 * i) for i in range(phnum)]
    starts = sorted(s[2] for s in segments if s[5])
    rng = random.Random(seed)
    # Near the edges of what is in it, in the notes, and anywhere.
    cuts = [100, headers - 1, headers + 100] + [s + d for s in rng.sample(starts, min(8, len(starts))) for d in (0, 1)]
    notes = [s for s in segments if s[0] == 4][0]
    cuts += [notes[2] + rng.randrange(notes[5]) for _ in range(6)]
    cuts += [rng.randrange(len(data)) for _ in range(max(0, places - len(cuts)))]
    failed, shown = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        cut = os.path.join(folder, "core")
        for size in sorted(min(c, len(data) - 1) for c in cuts):
            with open(cut, "wb") as f:
                f.write(data[:size])
            status, out, err = show(moonspy, cut)
            wrong = problem(status, out, err, whole, waiting, size < headers)
            if wrong:
                failed += 1
                print(f"FAIL: cut at {size} of {len(data)} (seed {seed}): {wrong}")
            if status == 4:
                seen = json.loads(out)
                shown += sum(map(len, [*frames(seen).values(), *coroutines(seen).values()]))
    print(f"{len(cuts)} cuts, {failed} wrong, {shown} frames shown, "
          f"{sum(map(len, [*whole.values(), *waiting.values()]))} in the whole core")
    return 1 if failed or not shown else 0


if __name__ == "__main__":
    sys.exit(main())
