#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: probes.sh [SUITE...]
#
# A LuaJIT with the VM descriptor in emulated machines with the kernel of each Debian suite. Its helpers are asked in signal
# handlers, by another process and of a core file. Its probes are heard by libbpf (tests/kit's own listener), gdb, perf and
# bpftrace, in a shared library, a stripped one and a stripped program that is all of it, and what is heard is held against what
# the VM tells there (tests/kit/probes.py). All but the kernel is bookworm's.
#
# Environment: see guest.sh; and TOOLS (gdb, bpftrace, perf, kit-usdt).
# Ends with 0 (all are right), 1 (not) or 77 (cannot run here).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${ARCH:=arm64}" "${TOOLS:=kit-usdt gdb perf bpftrace}"
[ $# -gt 0 ] || set -- bullseye bookworm trixie
. "$here/guest.sh"
[ -x "$build/tests/kit/kit-usdt" ] || skip "no kit-usdt in $build (make ARM64=1 tests)"
CROSS=
[ "$ARCH" = amd64 ] || CROSS=aarch64-linux-gnu-
fail() {
	echo "FAIL: $*" >&2
	exit 1
}
. "$root/tests/kit/tree.sh"
debian_tree bookworm
build "$tree"
exec 9>&-

packages() {
	echo bash gdb libbpf1 python3-minimal libpython3-stdlib
	for tool in $TOOLS; do
		case $tool in
		perf) echo linux-perf ;;
		bpftrace) echo bpftrace ;;
		esac
	done
}

make_guest bookworm "$here/listen" $(packages)
# perf can do without its scripts.
rm -rf "$guest/usr/share/perl" "$guest/usr/share/locale" "$guest"/usr/lib/*/perl "$guest"/usr/lib/*/perl-base
mkdir "$guest/kit"
cp -a "$built/src/luajit" "$built/src/static" "$built/src/stripped" "$built"/src/libluajit*.so* "$guest/kit"
for name in usdt signals reader; do
	cp "$build/tests/kit/kit-$name" "$guest/kit"
done
cp "$root/tests/kit/probes.py" "$root"/tests/kit/*.lua "$guest/kit"
echo "TOOLS='$TOOLS'" >>"$guest/config"
pack_guest

# judge NAME: its command ended with 0; what it printed.
judge() {
	status=$(cat "$1.status" 2>/dev/null || echo none)
	[ ! -e "$1.out" ] || sed "s/^/$version /" "$1.out"
	[ "$status" = 0 ] || fault "$1 ended with $status: $(tail -n 3 "$1.err" 2>/dev/null)"
}

# bpftrace's compiler is large.
memory=2048
for suite in "$@"; do
	version=$suite
	kernel=$(find_kernel "$suite") || {
		fault "its kernel could not be fetched"
		continue
	}
	version=${kernel##*/vmlinuz-}
	boot "$kernel" "$work/$suite/out" || continue
	cd "$work/$suite/out"
	judge signals
	judge reader
	for tool in $TOOLS; do
		[ "$suite $tool" != "bullseye kit-usdt" ] || {
			echo "$version: not by libbpf, which wants a process's number before Linux 5.15"
			continue
		}
		for file in shared stripped static; do
			[ "$tool $file" = "gdb static" ] || judge "$tool-$file"
		done
	done
	[ ! -s dmesg ] || fault "the kernel complains: $(cat dmesg)"
	cd "$work"
done
exit $failed
