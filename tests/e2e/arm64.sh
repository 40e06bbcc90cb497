#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds moonspy for arm64, and runs it by qemu's user mode: unit tests that need neither ptrace nor other programs;
# and core files of an arm64 LuaJIT and of one of this machine, of which it says what the moonspy of this machine
# says. Where there is no ptrace there is more to test: make test-arm64.
set -eu
. "$(dirname "$0")/lib.sh"
need aarch64-linux-gnu-gcc qemu-aarch64-static meson ninja python3
[ "$(uname -m)" = x86_64 ] || skip "this machine is not x86-64"
sysroot=$("$root/scripts/sysroot" bookworm/arm64 2>"$work/err") ||
	skip "Debian's arm64 packages could not be had: $(head -n 1 "$work/err")"

build=$root/build-arm64
units='elf_cache elf_cfi output output_msp profile profile_view target_core target_nowhere'
make -s -C "$root" ARM64=1 tests TARGETS="src/cli/moonspy $(printf 'tests/unit/test-%s ' $units)" >"$work/build" 2>&1 || {
	tail -n 40 "$work/build"
	fail "it does not build for arm64"
	finish
}
for unit in $units; do
	qemu-aarch64-static -L "$sysroot" "$build/tests/unit/test-$unit" >"$work/unit" 2>&1 && continue
	fail "unit test $unit"
	grep -E 'FAILED|ERROR|LINE' "$work/unit"
done

# look NAME CORE: both programs say the same of it, and it is whole.
look() {
	"$MOONSPY" core -lc "$2" >"$work/here" 2>"$work/here.err" || fail "$1: exit status $? here: $(cat "$work/here.err")"
	# Emulated, all builds look like the same program to their cache: it must be another one.
	rm -rf "$work/cache"
	mkdir "$work/cache"
	MOONSPY_CACHE_DIR=$work/cache qemu-aarch64-static "$build/src/cli/moonspy" core -lc "$2" \
		>"$work/there" 2>"$work/there.err" || fail "$1: exit status $? on arm64: $(cat "$work/there.err")"
	cmp -s "$work/here" "$work/there" || {
		fail "$1: another answer on arm64"
		diff "$work/here" "$work/there" | head -n 20
	}
	! grep -F '[error' "$work/here" || fail "$1: not whole"
	for text in 'main chunk' level via_gsub string.gsub via_coroutine; do
		grep -q -- "$text" "$work/here" || fail "$1: no '$text'"
	done
	echo "$1: $(wc -l <"$work/here") lines, the same on both"
}

ulimit -c unlimited 2>/dev/null || skip "no core files here (ulimit -c)"
mkdir "$work/cwd"
cd "$work/cwd"
for mode in nojit jit; do
	start ready qemu-aarch64-static -L "$sysroot" "$sysroot/usr/bin/luajit" -e 'print("ready") io.flush()' \
		"$workloads/mixed.lua" 60 $mode
	pid=$!
	wait_for ready ready
	sleep 1
	cp "/proc/$pid/maps" maps
	kill -SEGV $pid
	wait $pid 2>/dev/null || :
	set -- qemu_luajit_*.core
	[ -f "$1" ] || skip "qemu wrote no core file"
	python3 "$here/qemu_core.py" "$1" maps "$work/arm64.core"
	look "arm64 $mode" "$work/arm64.core"
	rm -f ./*
done

case $(cat /proc/sys/kernel/core_pattern) in
core | core.%p) ;;
*)
	echo "the core files of this machine go elsewhere (core_pattern): not tried on arm64"
	finish
	;;
esac
start out "$LUAJIT" -e 'print("ready") io.flush()' "$workloads/mixed.lua" 60 jit
pid=$!
wait_for out ready
sleep 1
kill -SEGV $pid
wait $pid 2>/dev/null || :
look "x86-64 jit" "$(echo core*)"
finish
