#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: workload.sh NAME jit|nojit [ARGS...]. One Lua workload, sampled while it runs: at least 99.9 % whole, none illegal.
# Apart from the first samples of a program that is just starting. The oracle (tests/conformance) is stricter, at every instruction.
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
record "$work/p" -- "$LUAJIT" "$workloads/$name.lua" "${SECONDS_EACH:-3}" "$mode" "$@"
set -- --graph "$workloads/$name.graph" --min-whole 99.9 --min-samples $((${SECONDS_EACH:-3} * 300))
! grep -q '^truth' "$work/p.out" || set -- "$@" --truth "$work/p.out" --max-tv "$tv"
# shellcheck disable=SC2046
check "$name $mode" "$work/p" "$@" $(jit_options "$mode")
finish
