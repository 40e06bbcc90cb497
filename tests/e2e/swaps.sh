#!/bin/sh
# SPDX-License-Identifier: MIT
# Libraries that are opened where others were: until a new one is known, its code is marked, not taken
# for that of the old one.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need_program swaps
record "$work/p" -r 1999 -- "$PROGRAMS/swaps" 6 "$PROGRAMS/first.so" "$PROGRAMS/second.so"
check "libraries in turn" "$work/p" --graph "$workloads/swaps.graph" --min-whole 5 --max-native 100 \
	--contains '{start};run_first \(swaps\);swapped \(first\.so\);first_outer \(first\.so\);first_inner=1' \
	--contains '{start};run_second \(swaps\);swapped \(second\.so\);second_outer \(second\.so\);second_inner=1'
# No event tells this engine: it looks at the target's memory.
start "$work/out" "$PROGRAMS/swaps" 30 "$PROGRAMS/first.so" "$PROGRAMS/second.so"
target=$!
sleep 0.2
record "$work/q" --engine ptrace -r 199 -p "$target" -d 5s
check "libraries in turn, ptrace" "$work/q" --graph "$workloads/swaps.graph" --min-whole 5 --max-native 100 \
	--min-samples 30 \
	--contains '{start};run_(?:first|second) \(swaps\);swapped \([a-z]*\.so\)=1'
stop "$target"
finish
