#!/bin/sh
# SPDX-License-Identifier: MIT
# Core files of crashes: in the VM's own code, in a trace, in C called from either, in the collector,
# in callbacks, with several VMs and threads, with stacks that were written over; cut off, compressed,
# without their files. What each must show stands in core_crash.py.
set -eu
. "$(dirname "$0")/lib.sh"
need python3
need_program crash
[ -x "$MOONSPY" ] || skip "no moonspy at $MOONSPY"
case $(cat /proc/sys/kernel/core_pattern) in
"|"*) skip "cores go to a program here (core_pattern)" ;;
esac
ulimit -c unlimited 2>/dev/null || skip "no core files here (ulimit -c)"

# crash OUT COMMAND...: runs it, and keeps its core as OUT.
crash() {
	crash_out=$1
	shift
	rm -rf "$work/cwd"
	mkdir "$work/cwd"
	(cd "$work/cwd" && "$@" >/dev/null 2>&1) || :
	set -- "$work"/cwd/core*
	[ -f "$1" ] || skip "the kernel wrote no core"
	mv "$1" "$crash_out"
}

# look NAME CORE OPTIONS...: what is printed must fit what core_crash.py has under NAME.
look() {
	look_name=$1
	shift
	look_status=0
	"$MOONSPY" core -j -lc "$@" >"$work/json" 2>"$work/err" || look_status=$?
	python3 "$here/core_crash.py" "$look_name" "$look_status" "$work/json" "$work/err" || failed=1
	timeout 60 "$MOONSPY" core -llc "$@" >"$work/text" 2>/dev/null || :
	grep -q "^Thread " "$work/text" || fail "$look_name: no thread in the text"
}

cp "$PROGRAMS/crash" "$work/crash"
program=$work/crash
for mode in nojit jit; do
	for where in vm trace helper gc ffi callback cfunction coroutine nested threads smash_c smash_lua; do
		crash "$work/core" "$program" "$workloads/cores/crash.lua" $where $mode
		look $where-$mode "$work/core"
	done
done

crash "$work/core" "$program" "$workloads/cores/crash.lua" vm nojit
if command -v zstd >/dev/null; then
	zstd -q "$work/core" -o "$work/core.zst"
	look vm-nojit "$work/core.zst"
	head -c 2000 "$work/core.zst" >"$work/cut.zst"
	"$MOONSPY" core -q "$work/cut.zst" >/dev/null 2>"$work/err" && fail "a zstd core of 2000 bytes is no failure"
fi
if command -v xz >/dev/null; then
	xz -k "$work/core"
	look vm-nojit "$work/core.xz"
fi
if command -v lz4 >/dev/null; then
	lz4 -q "$work/core" "$work/core.lz4"
	look vm-nojit "$work/core.lz4"
fi
size=$(stat -c %s "$work/core")
for part in 90 50 10 2; do
	head -c $((size * part / 100)) "$work/core" >"$work/cut"
	look cut "$work/cut"
done

# All pages dumped: the files are not needed, only their symbols are missing.
crash "$work/full" sh -c 'echo 0x37 >/proc/$$/coredump_filter; exec "$@"' sh "$program" "$workloads/cores/crash.lua" vm nojit
look vm-nojit "$work/full"
mv "$program" "$work/elsewhere"
look vm-nojit "$work/core" --exe "$work/elsewhere"
look no-exe "$work/core" --sysroot "$work/none"
look full-no-exe "$work/full"
look no-exe "$work/core"
mkdir "$work/root"
cp "$work/elsewhere" "$work/root/crash"
look vm-nojit "$work/core" --sysroot "$work/root"
cp /bin/true "$program"
look other-exe "$work/core"
look other-exe "$work/core" --exe /bin/true
finish
