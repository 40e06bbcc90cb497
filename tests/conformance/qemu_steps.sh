#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: qemu_steps.sh QEMU-STEPS STEPS NAME MODE [SUITE], or qemu_steps.sh QEMU-STEPS STEPS all [SUITE...]
# Steps a workload under Debian's arm64 LuaJIT in qemu's user mode: stacks whole, all legal. A LuaJIT that
# crashes in the workload by itself has broken its own C stack: marks are right there, wrong stacks are not.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
workloads=$root/tests/workloads

if [ "${3-}" = all ]; then
	program=$1 steps=$2 bad=0
	shift 3
	[ $# -gt 0 ] || set -- bullseye bookworm trixie
	for name in $(cd "$workloads" && grep -l '^include luajit.graph' -- *.graph | sed 's/\.graph$//'); do
		[ -e "$workloads/$name.lua" ] || continue
		for suite in "$@"; do
			for mode in nojit jit; do
				"$0" "$program" "$steps" "$name" "$mode" "$suite" || { [ $? = 77 ] && exit 77; } || bad=1
			done
		done
	done
	exit $bad
fi

skip() {
	echo "skipped: $1"
	exit 77
}

program=$1 steps=$2 name=$3 mode=$4 suite=${5:-bookworm}
for tool in qemu-aarch64-static python3; do
	command -v $tool >/dev/null || skip "there is no $tool (scripts/packages arm64)"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sysroot=$("$root/scripts/sysroot" "$suite/arm64" 2>"$work/err") ||
	skip "Debian's arm64 packages could not be had: $(head -n 1 "$work/err")"
rc=0
TMPDIR=$work "$program" -n "$steps" -b 300 -t "$suite arm64 $name $mode" -o "$work/stacks.json" qemu-aarch64-static "$sysroot" \
	"$sysroot/usr/bin/luajit" "$workloads/$name.lua" 1000000 "$mode" || rc=$?
[ "$rc" != 2 ] || exit 1
if [ "$rc" = 1 ]; then
	(cd "$work" && ulimit -c 0 && exec timeout 120 qemu-aarch64-static -L "$sysroot" "$sysroot/usr/bin/luajit" \
		"$workloads/$name.lua" 2 "$mode" >"$work/out" 2>&1) || [ $? != 139 ] || {
		echo "    this LuaJIT crashes in it by itself"
		rc=0
	}
fi
python3 "$here/oracle_check.py" "$work/stacks.json" "$workloads/$name.graph" "$mode" || rc=1
exit "$rc"
