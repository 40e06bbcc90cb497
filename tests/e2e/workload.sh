#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: workload.sh NAME jit|nojit [ARGS...]. One Lua workload, sampled while it runs: at least 99.5 % whole, none illegal.
# A short recording of a program that is just starting; the oracle (tests/conformance) is stricter, at every instruction.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need "$LUAJIT"
name=$1 mode=${2:-jit}
shift
[ $# = 0 ] || shift
# Where calibration is coarse or the collector moves time about, shares say less.
case $name in
finalizers | ffi | collector | loads) tv=6 ;;
*) tv=4 ;;
esac
# While the Lua stack is being moved, the frames on it cannot be found: those stacks are marked. growth does little else.
case $name in
growth) whole=98 ;;
boundaries) whole=99 ;;
*) whole=99.5 ;;
esac
# Known faults, a sample in some thousands: in the last steps of an error that ends a coroutine, and a caller missed
# at single instructions that the oracle has not covered yet. Only where they were seen, and no more than that.
case $name in
coroutines | errors | ffi) illegal=0.1 ;;
*) illegal=0 ;;
esac
record "$work/p" -- "$LUAJIT" "$workloads/$name.lua" "${SECONDS_EACH:-3}" "$mode" "$@"
set -- --graph "$workloads/$name.graph" --min-whole $whole --max-illegal $illegal --min-samples $((${SECONDS_EACH:-3} * 300))
! grep -q '^truth' "$work/p.out" || set -- "$@" --truth "$work/p.out" --max-tv "$tv"
# shellcheck disable=SC2046
check "$name $mode" "$work/p" "$@" $(jit_options "$mode")
finish
