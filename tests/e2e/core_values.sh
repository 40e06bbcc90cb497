#!/bin/sh
# SPDX-License-Identifier: MIT
# Locals, upvalues, varargs and their values: what dump -ll and core -ll show must agree with what the
# program's own debug library says; stripped bytecode has values without names; objects that lie are marked.
set -eu
. "$(dirname "$0")/lib.sh"
need python3 "$LUAJIT" gcore
[ -x "$MOONSPY" ] || skip "no moonspy at $MOONSPY"

# waiting NAME COMMAND...: starts a program that waits for its input, once it has said so in NAME.truth.
waiting() {
	name=$1
	shift
	rm -f "$work/in"
	mkfifo "$work/in"
	"$@" "$work/$name.truth" <"$work/in" >"$work/$name.out" 2>&1 &
	pid=$!
	started="$started $pid"
	exec 9>"$work/in"
	wait_for "$work/$name.truth" ready
}

# look NAME [stripped]: live and as a core, which must say the same.
look() {
	"$MOONSPY" dump -q -j -llc -p "$pid" >"$work/$1.live" || fail "$1: dump ended with $?"
	gcore -o "$work/$1" "$pid" >/dev/null 2>&1 || fail "$1: gcore"
	"$MOONSPY" core -q -j -llc "$work/$1.$pid" >"$work/$1.core" || fail "$1: core ended with $?"
	python3 "$here/core_values.py" "$work/$1.truth" "$work/$1.live" ${2-} || failed=1
	python3 "$here/core_values.py" "$work/$1.truth" "$work/$1.core" ${2-} || failed=1
	exec 9>&-
	wait "$pid" || fail "$1: the program did not survive"
}

waiting plain "$LUAJIT" "$workloads/cores/values.lua"
"$MOONSPY" dump -q -l -p "$pid" >"$work/text" || fail "dump -l"
grep -q '^        local s = "text"$' "$work/text" || fail "a local in the text"
grep -q '^        upvalue counter = 42$' "$work/text" || fail "an upvalue in the text"
grep -q '^        vararg 1 = "vararg"$' "$work/text" || fail "a vararg in the text"
grep -q '^        local cycle = {self = table 0x[0-9a-f]*}$' "$work/text" || fail "a table in the text"
kept=$pid
look plain
# Only this LuaJIT's layout is known to the test.
if "$LUAJIT" -e 'os.exit(jit and jit.arch == "x64" and require("ffi").abi("gc64") and 0 or 1)' 2>/dev/null; then
	python3 "$here/core_hostile.py" "$MOONSPY" "$work/plain.$kept" || failed=1
fi
"$LUAJIT" -b -s "$workloads/cores/values.lua" "$work/values.raw" 2>/dev/null || skip "luajit -b needs jit/bcsave.lua"
waiting stripped "$LUAJIT" "$work/values.raw"
look stripped stripped
finish
