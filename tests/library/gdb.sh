#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: gdb.sh LIBRARY.so: gdb's lua-bt (examples/gdb), of a process and of a core.
set -eu
MOONSPY_LIBRARY=$(realpath "$1")
export MOONSPY_LIBRARY
here=$(cd "$(dirname "$0")" && pwd)
for tool in gdb gcore luajit; do
	command -v $tool >/dev/null || { echo "SKIP: $tool is not installed"; exit 77; }
done
gdb -nx -batch -ex 'python print(1)' 2>/dev/null | grep -qx 1 || { echo "SKIP: this gdb has no Python"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-gdb.XXXXXX")
pid=
trap 'kill $pid 2>/dev/null || :; rm -rf "$work"' EXIT
luajit -e 'jit.off()
local function spin() local n = 0 print("ready") io.flush() while true do n = n + 1 end end
local function outer() spin() return 1 end
outer()' >"$work/out" &
pid=$!
for _ in $(seq 100); do
	grep -q ready "$work/out" && break
	sleep 0.1
done
gcore -o "$work/core" "$pid" >"$work/gcore" 2>&1 || { cat "$work/gcore"; echo "SKIP: gcore is not allowed here"; exit 77; }
rc=0
for of in "-p $pid" "luajit $work/core.$pid"; do
	# shellcheck disable=SC2086
	[ "$of" = "-p $pid" ] || of="$(command -v luajit) $work/core.$pid"
	# shellcheck disable=SC2086
	gdb -nx -batch $of -x "$here/../../examples/gdb/lua_bt.py" -ex lua-bt >"$work/bt" 2>&1 || :
	stack=$(sed -n '/ in ?? ()$/d; s/^#[0-9]* *//p' "$work/bt" | tr '\n' '|')
	case $stack in
	"spin ((command line):2)|outer ((command line):3)|main chunk ((command line):4)|lua_pcall in "*"main in "*"_start in "*) echo "whole: $stack" ;;
	*) cat "$work/bt" && rc=1 ;;
	esac
done
exit $rc
