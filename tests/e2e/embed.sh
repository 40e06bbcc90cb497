#!/bin/sh
# SPDX-License-Identifier: MIT
# A C program that goes through LuaJIT in every way that its C interface has, and is interrupted by signals.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need_program embed
for mode in nojit jit; do
	record "$work/p" -- "$PROGRAMS/embed" "${SECONDS_EACH:-4}" "$mode"
	# shellcheck disable=SC2046
	check "embed $mode" "$work/p" --graph "$workloads/embed.graph" --min-whole 99.9 $(jit_options "$mode")
done
status=0
"$MOONSPY" inspect "$PROGRAMS/embed" >"$work/out" 2>&1 || status=$?
grep -q "it loads one: moonspy inspect /.*libluajit" "$work/out" || fail "its library is not named: $(cat "$work/out")"
[ $status = 6 ] || fail "status $status of a program without a LuaJIT of its own"
finish
