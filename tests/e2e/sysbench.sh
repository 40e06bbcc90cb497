#!/bin/sh
# SPDX-License-Identifier: MIT
# sysbench with a Lua script of ours, and its own cpu test, which is native.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need sysbench
cd "$workloads"
record "$work/p" -- sysbench ./sysbench.lua --threads=2 --time="${SECONDS_EACH:-4}" run
grep -q "total number of events" "$work/p.out" || fail "sysbench did not finish: $(cat "$work/p.out")"
check sysbench "$work/p" --graph "$workloads/sysbench.graph" --min-whole 99.5 --inlined-hidden \
	--contains '{thread};{any}.*event \([^;]*sysbench.lua:[0-9]+\)=50'
record "$work/q" -- sysbench cpu --threads=2 --time=2 run
check "sysbench cpu" "$work/q" --single-root --min-whole 99.5
finish
