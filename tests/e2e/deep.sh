#!/bin/sh
# SPDX-License-Identifier: MIT
# Stacks of 500, 10,000 and 13,000 Lua frames: whole below the limit, else marked as truncated and counted.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need "$LUAJIT"
for depth in 500 10000 13000; do
	record "$work/p" -- "$LUAJIT" "$workloads/deep.lua" "${SECONDS_EACH:-3}" nojit "$depth"
	check "deep $depth" "$work/p" --graph "$workloads/deep.graph" --min-whole 99.9 --truth "$work/p.out"
	python3 - "$work/p" "$depth" <<-'END' || fail "depth $depth"
		import json, sys
		profile, depth = json.load(open(sys.argv[1])), int(sys.argv[2])
		cut = profile["quality"]["truncated"] / max(profile["quality"]["samples"], 1)
		deepest = max(len(stack["frames"]) for stack in profile["stacks"])
		leaves = sum(s["count"] for s in profile["stacks"] if any(f["name"] == "bottom" for f in s["frames"]))
		print("deep %d: %.1f %% truncated, longest stack %d frames" % (depth, 100 * cut, deepest))
		ok = cut == 0 and deepest > depth if depth < 1000 else cut > 0.5 and deepest >= 1000
		sys.exit(0 if ok and leaves else 1)
	END
done
finish
