#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: qemu_steps.sh QEMU-STEPS STEPS NAME MODE [SUITE]
# Steps a workload under Debian's arm64 LuaJIT in qemu's user mode: all stacks whole, all legal.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
workloads=$root/tests/workloads

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
python3 "$here/oracle_check.py" "$work/stacks.json" "$workloads/$name.graph" "$mode" || rc=1
exit "$rc"
