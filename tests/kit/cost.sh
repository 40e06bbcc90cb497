#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: cost.sh DIR [tables]: builds a LuaJIT source tree without the kit and with it, in copies, and compares them: see
# cost.py. Then, or with "tables" only, what tables of traces cost: see table_cost.py. Environment: KIT (folder of the built
# test programs).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${KIT:=$here/../../build/tests/kit}"
[ "$#${2:-}" = 1 ] || [ "$#${2:-}" = 2tables ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2 && exit 2; }
command -v valgrind >/dev/null || { echo "SKIP: no valgrind" && exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-cost.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
trees="without with"
[ $# = 1 ] || trees=with
for tree in $trees; do
	cp -a "$1" "$work/$tree"
	[ $tree = without ] || "$here/../../instrument/apply" "$work/$tree" >/dev/null
	make -C "$work/$tree" >"$work/log" 2>&1 || { tail -5 "$work/log" >&2 && exit 1; }
done
[ $# = 2 ] || {
	size "$work/without/src/luajit" "$work/with/src/luajit"
	python3 "$here/cost.py" "$work/without/src/luajit" "$work/with/src/luajit"
}
python3 "$here/table_cost.py" "$KIT/kit-table-cost" "$work/with/src/libluajit.so"
