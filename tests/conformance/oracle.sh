#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: oracle.sh ORACLE STEPS NAME jit|nojit. One workload, stepped: no faults, every stack legal.
# NAME: a Lua workload; with +signals: a signal comes every 211 instructions. Or a C one: embed; signals, embed with a
# signal every 499; fork, whose children are stepped; library, a LuaJIT loaded late, and again; vms-nested, vms-turns,
# vms-threads, vms-passed.
# STEPS 0: all workloads, in turn, without end. COVERAGE=FILE gathers the instructions seen. STACKS=FOLDER: whether the
# stacks are legal is not judged here; they are put there, and how to judge them. OPTIONS: more of the oracle's.
set -eu
oracle=$1 steps=$2 name=${3-} mode=${4-}
here=$(cd "$(dirname "$0")" && pwd)
workloads=$here/../workloads
: "${LUAJIT:=luajit}" "${COVERAGE:=}" "${PROGRAMS:=$here/../../build/tests/workloads}"
command -v "$LUAJIT" >/dev/null || { echo "SKIP: no $LUAJIT"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-oracle.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

libluajit() {
	[ -z "${LIBLUAJIT-}" ] || { echo "$LIBLUAJIT" && return; }
	ldconfig -p | sed -n 's/.*libluajit-5\.1\.so\.2 .*=> //p' | head -n 1
}

# step STEPS NAME MODE
step() {
	count=$1 title="$2 $3" graph=$workloads/$2.graph check=$3 options='' seen=''
	case $2 in
	embed) set -- "$PROGRAMS/embed" 1000000 "$3" ;;
	signals) graph=$workloads/embed.graph options='-s 499' seen=signals && set -- "$PROGRAMS/embed" 1000000 "$3" ;;
	fork) graph=$workloads/processes.graph seen='other processes' && set -- "$PROGRAMS/processes" fork 1000000 1 ;;
	library) set -- "$PROGRAMS/library" 3 "$(libluajit)" ;;
	vms-nested | vms-turns) set -- "$PROGRAMS/vms" 1000000 "${2#vms-}" "$3" ;;
	vms-*) seen='other threads' && set -- "$PROGRAMS/vms" 1000000 "${2#vms-}" "$3" ;;
	*+signals)
		graph=$workloads/${2%+*}.graph options="-s 211 -p $PROGRAMS/handlers.so" seen=signals
		set -- "$LUAJIT" "$workloads/${2%+*}.lua" 1000000 "$3"
		;;
	*) set -- "$LUAJIT" "$workloads/$2.lua" 1000000 "$3" ;;
	esac
	[ -e "$graph" ] || graph=$workloads/vms.graph
	rc=0
	# shellcheck disable=SC2086
	"$oracle" -n "$count" -t "$title" -o "$work/stacks.json" -c "${COVERAGE:-$work/coverage}" ${OPTIONS-} $options "$@" \
		>"$work/figures" || rc=$?
	cat "$work/figures"
	[ "$rc" -lt 2 ] || return "$rc"
	[ -z "$seen" ] || grep -q "[1-9][0-9]* $seen" "$work/figures" || { echo "there were no $seen" && rc=1; }
	if [ -n "${STACKS-}" ]; then
		mv "$work/stacks.json" "$STACKS/$title.json"
		echo "${graph##*/} $check" >"$STACKS/$title.check"
	else
		python3 "$here/oracle_check.py" "$work/stacks.json" "$graph" "$check" || rc=1
	fi
	return "$rc"
}

if [ "$steps" != 0 ]; then
	step "$steps" "$name" "$mode"
	exit
fi
COVERAGE=${COVERAGE:-$work/coverage}
programs=
[ ! -x "$PROGRAMS/embed" ] || programs='embed signals fork library vms-nested vms-turns vms-threads vms-passed'
while :; do
	for name in $programs $(cd "$workloads" && grep -l '^include luajit.graph' -- *.graph | sed 's/\.graph$//; p; s/$/+signals/'); do
		for mode in jit nojit; do
			step 1000000 "$name" "$mode" || echo "FAULTS in $name $mode"
		done
	done
done
