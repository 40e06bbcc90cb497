#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: cost.sh DIR: builds a LuaJIT source tree without the kit and with it, in copies, and compares them: see cost.py.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 1 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2 && exit 2; }
command -v valgrind >/dev/null || { echo "SKIP: no valgrind" && exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-cost.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
for tree in without with; do
	cp -a "$1" "$work/$tree"
	[ $tree = without ] || "$here/../../instrument/apply" "$work/$tree" >/dev/null
	make -C "$work/$tree" >"$work/log" 2>&1 || { tail -5 "$work/log" >&2 && exit 1; }
done
size "$work/without/src/luajit" "$work/with/src/luajit"
python3 "$here/cost.py" "$work/without/src/luajit" "$work/with/src/luajit"
