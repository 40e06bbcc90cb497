#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: truth.sh jit|nojit. The main test: 10 s at 999 Hz of many kinds of work: at least 99.5 % whole,
# every stack legal, shares as the workload measured them itself.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need "$LUAJIT"
mode=${1:-jit}
record "$work/p" -- "$LUAJIT" "$workloads/truth.lua" "${SECONDS_EACH:-10}" "$mode"
# shellcheck disable=SC2046
check "truth $mode" "$work/p" --graph "$workloads/truth.graph" --truth "$work/p.out" --min-whole 99.5 --max-tv 2 \
	--min-samples $((${SECONDS_EACH:-10} * 900)) $(jit_options "$mode")
finish
