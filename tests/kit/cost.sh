#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: cost.sh DIR [tables]: builds a LuaJIT source tree without the kit and with it, in copies, and compares them: how
# long the compiler takes, sizes, the interpreter's code, what programs say (output.py), what they cost (cost.py). Then, or
# with "tables" only, what tables of traces cost: see table_cost.py. Environment: KIT (folder of the built test programs).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${KIT:=$here/../../build/tests/kit}"
[ "$#${2:-}" = 1 ] || [ "$#${2:-}" = 2tables ] || { sed -n '3,5s/^# //p' "$0" >&2 && exit 2; }
command -v valgrind >/dev/null || { echo "SKIP: no valgrind" && exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-cost.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
trees="without with"
[ $# = 1 ] || trees=with
for tree in $trees; do
	cp -a "$1" "$work/$tree"
	[ $tree = without ] || "$here/../../instrument/apply" "$work/$tree" >/dev/null
	echo "$tree the kit, seconds of CPU time to build it:"
	(make -C "$work/$tree" >"$work/log" 2>&1 && times >"$work/times") || { tail -5 "$work/log" >&2 && exit 1; }
	sed -n 2p "$work/times"
	objcopy -O binary -j .text "$work/$tree/src/lj_vm.o" "$work/$tree/vm"
done
[ $# = 2 ] || {
	size "$work/without/src/luajit" "$work/with/src/luajit"
	cmp "$work/without/vm" "$work/with/vm" || exit 1
	echo "the interpreter's code is the same, byte for byte"
	python3 "$here/output.py" "$work/without/src/luajit" "$work/with/src/luajit" || exit 1
	python3 "$here/cost.py" "$work/without/src/luajit" "$work/with/src/luajit"
}
python3 "$here/table_cost.py" "$KIT/kit-table-cost" "$work/with/src/libluajit.so"
