#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: oracle.sh ORACLE STEPS NAME jit|nojit. One workload, stepped: no faults, every stack legal.
# NAME: a Lua workload, or a mode of a C one: embed, vms-nested, vms-turns.
# STEPS 0: all workloads, in turn, without end. COVERAGE=FILE gathers the instructions seen.
set -eu
oracle=$1 steps=$2 name=${3-} mode=${4-}
here=$(cd "$(dirname "$0")" && pwd)
workloads=$here/../workloads
: "${LUAJIT:=luajit}" "${COVERAGE:=}" "${PROGRAMS:=$here/../../build/tests/workloads}"
command -v "$LUAJIT" >/dev/null || { echo "SKIP: no $LUAJIT"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-oracle.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

# step STEPS NAME MODE
step() {
	count=$1 title="$2 $3" graph=$workloads/$2.graph check=$3
	case $2 in
	embed) set -- "$PROGRAMS/embed" 1000000 "$3" ;;
	vms-*) set -- "$PROGRAMS/vms" 1000000 "${2#vms-}" "$3" ;;
	*) set -- "$LUAJIT" "$workloads/$2.lua" 1000000 "$3" ;;
	esac
	[ -e "$graph" ] || graph=$workloads/vms.graph
	rc=0
	"$oracle" -n "$count" -t "$title" -o "$work/stacks.json" -c "${COVERAGE:-$work/coverage}" "$@" || rc=$?
	[ "$rc" -lt 2 ] || return "$rc"
	python3 "$here/oracle_check.py" "$work/stacks.json" "$graph" "$check" || rc=1
	return "$rc"
}

if [ "$steps" != 0 ]; then
	step "$steps" "$name" "$mode"
	exit
fi
COVERAGE=${COVERAGE:-$work/coverage}
while :; do
	for name in embed vms-nested vms-turns $(cd "$workloads" && grep -l '^include luajit.graph' -- *.graph); do
		name=${name%.graph}
		[ -e "$workloads/$name.lua" ] || [ -x "$PROGRAMS/${name%%-*}" ] || continue
		for mode in jit nojit; do
			step 1000000 "$name" "$mode" || echo "FAULTS in $name $mode"
		done
	done
done
