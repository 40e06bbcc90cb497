#!/bin/sh
# SPDX-License-Identifier: MIT
# What the compiler made of a program, and what it gave up on: of the process while it runs, of its core file, and with
# the samples of a profile. What each must show stands in traces.py.
set -eu
. "$(dirname "$0")/lib.sh"
need python3 "$LUAJIT"
[ -x "$MOONSPY" ] || skip "no moonspy at $MOONSPY"

# look NAME ARGS...: in both forms.
look() {
	look_name=$1
	shift
	if ! "$MOONSPY" traces -j "$@" >"$work/json" 2>"$work/err" || ! "$MOONSPY" traces "$@" >"$work/text" 2>"$work/err"; then
		fail "$look_name: $(cat "$work/err")"
		return
	fi
	python3 "$here/traces.py" "$look_name" "$here/traces.lua" "$work/json" "$work/text" || failed=1
}

ulimit -c unlimited 2>/dev/null || :
start "$work/out" sh -c "cd '$work' && exec '$LUAJIT' '$here/traces.lua'"
pid=$!
wait_for "$work/out" ready
look live -p "$pid"
look annotated -p "$pid" --annotate "$(python3 "$here/traces.py" number "$here/traces.lua" "$work/json" "$work/text")"
if [ "$(id -u)" = 0 ] && "$MOONSPY" record -q -r 999 -p "$pid" -d 1s -o "$work/run.msp" 2>/dev/null; then
	look sampled -p "$pid" --samples "$work/run.msp"
fi
"$MOONSPY" traces -p "$pid" --annotate 65535 >"$work/text" 2>"$work/err" && fail "a trace that is not there"
grep -q "there is no trace 65535" "$work/err" || fail "not said that there is no such trace"
case $(cat /proc/sys/kernel/core_pattern) in
"|"* | /*) ;;
*)
	kill -ABRT "$pid"
	wait "$pid" 2>/dev/null || :
	for core in "$work"/core*; do
		[ -f "$core" ] && look core "$core"
	done
	;;
esac
finish
