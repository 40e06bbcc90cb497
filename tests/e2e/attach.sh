#!/bin/sh
# SPDX-License-Identifier: MIT
# Attaching by -p to programs in mid-run: one that has long been in its only loop, and one that does all kinds of
# work; the target lives on, unchanged; a target that ends ends the recording.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need "$LUAJIT"
seconds=${SECONDS_EACH:-3}

for mode in jit nojit; do
	start "$work/late" "$LUAJIT" "$workloads/late.lua" 30 "$mode"
	target=$!
	wait_for "$work/late" "attach now"
	record "$work/p" -p "$target" -d "${seconds}s"
	check "attach late $mode" "$work/p" --graph "$workloads/late.graph" --min-whole 99.9 \
		--min-samples $((seconds * 50))
	kill -0 "$target" 2>/dev/null || fail "the target is gone"
	stop "$target"
done

start "$work/truth" "$LUAJIT" "$workloads/truth.lua" 60 jit
target=$!
sleep 1
record "$work/p" -p "$target" -d "${seconds}s"
check "attach truth" "$work/p" --graph "$workloads/truth.graph" --min-whole 99.5 --inlined-hidden
kill -0 "$target" 2>/dev/null || fail "the target is gone"
stop "$target"

start "$work/short" "$LUAJIT" "$workloads/truth.lua" 2 jit
target=$!
record "$work/p" -p "$target"
wait "$target" || fail "the target ended with $?"
grep -q '^truth w_objects' "$work/short" || fail "the target did not finish its work"
check "target ends" "$work/p" --graph "$workloads/truth.graph" --min-whole 99.5 --inlined-hidden
finish
