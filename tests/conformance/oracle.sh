#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: oracle.sh ORACLE STEPS NAME jit|nojit. One workload, stepped: no faults, every stack legal.
# STEPS 0: all workloads, in turn, without end. COVERAGE=FILE gathers the instructions seen.
set -eu
oracle=$1 steps=$2 name=${3-} mode=${4-}
here=$(cd "$(dirname "$0")" && pwd)
workloads=$here/../workloads
: "${LUAJIT:=luajit}" "${COVERAGE:=}"
command -v "$LUAJIT" >/dev/null || { echo "SKIP: no $LUAJIT"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-oracle.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

# step STEPS NAME MODE
step() {
	rc=0
	"$oracle" -n "$1" -t "$2 $3" -o "$work/stacks.json" -c "${COVERAGE:-$work/coverage}" \
		"$LUAJIT" "$workloads/$2.lua" 1000000 "$3" || rc=$?
	[ "$rc" -lt 2 ] || return "$rc"
	python3 "$here/oracle_check.py" "$work/stacks.json" "$workloads/$2.graph" "$3" || rc=1
	return "$rc"
}

if [ "$steps" != 0 ]; then
	step "$steps" "$name" "$mode"
	exit
fi
COVERAGE=${COVERAGE:-$work/coverage}
while :; do
	for graph in "$workloads"/*.graph; do
		name=$(basename "$graph" .graph)
		grep -q '^include luajit.graph' "$graph" && [ -e "$workloads/$name.lua" ] || continue
		for mode in jit nojit; do
			step 1000000 "$name" "$mode" || echo "FAULTS in $name $mode"
		done
	done
done
