#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: run.sh [SUITE...]
#
# Boots the kernel of each Debian suite (bullseye: 5.10, bookworm: 6.1, trixie: 6.12) in an
# emulated machine, records and dumps there, and holds the profiles against the workloads'
# call graphs here. Needs no root and changes nothing; kernels are kept in .cache.
#
# Environment: MOONSPY (a static moonspy), SECONDS_EACH (5), RATE (199), KEEP=1 (keep the
# results), GUEST_LIMIT (seconds until a guest is given up, 300).
# Ends with 0 (as asked), 1 (not) or 77 (cannot run here).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
: "${MOONSPY:=$root/build/src/cli/moonspy}" "${SECONDS_EACH:=5}" "${RATE:=199}" "${GUEST_LIMIT:=300}"
[ $# -gt 0 ] || set -- bullseye bookworm trixie

skip() {
	echo "SKIP: $*"
	exit 77
}
for tool in qemu-system-x86_64 busybox cpio python3; do
	command -v $tool >/dev/null || skip "$tool is not installed (scripts/packages kernels)"
done
[ -x "$MOONSPY" ] || skip "no moonspy at $MOONSPY"
[ "$(uname -m)" = x86_64 ] || skip "the guests are x86-64, this machine is not"

work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-kernels.XXXXXX")
cleanup() {
	if [ "${KEEP-}" = 1 ]; then
		echo "kept: $work" >&2
	else
		rm -rf "$work"
	fi
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

failed=0
fault() {
	echo "$version FAIL: $*"
	failed=1
}

# Everything but the kernel: the same in all guests.
make_initramfs() {
	guest=$work/guest
	mkdir -p "$guest/bin" "$guest/proc" "$guest/sys" "$guest/dev" "$guest/tmp" "$guest/workloads"
	"$root/scripts/debs" --depends --unpack "$guest" bookworm luajit >"$work/debs" ||
		skip "Debian's luajit could not be fetched"
	rm -rf "$guest/usr/share/doc" "$guest/usr/lib/x86_64-linux-gnu/gconv"
	cp "$(command -v busybox)" "$guest/bin/busybox"
	cp "$MOONSPY" "$guest/bin/moonspy"
	cp "$here/init" "$guest/init"
	cp "$root"/tests/workloads/*.lua "$here"/*.lua "$guest/workloads"
	printf 'SECONDS_EACH=%s RATE=%s\n' "$SECONDS_EACH" "$RATE" >"$guest/config"
	(cd "$guest" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs"
}

# The kernel that the suite's metapackage names: its path.
find_kernel() {
	meta=$("$root/scripts/debs" "$1/amd64" linux-image-amd64) || return
	package=$(dpkg-deb -f "$meta" Depends | sed 's/[ ,].*//')
	deb=$("$root/scripts/debs" "$1/amd64" "$package") || return
	mkdir -p "$work/$1"
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work/$1" --wildcards './boot/vmlinuz-*'
	echo "$work/$1"/boot/vmlinuz-*
}

# boot KERNEL FOLDER: the guest's results in FOLDER, its console in FOLDER/console. Both
# processors take turns in one thread: with a thread each, one may run code that the other has
# patched just now (static branches), and the kernel panics.
boot() {
	mkdir -p "$2"
	timeout -k 5 "$GUEST_LIMIT" qemu-system-x86_64 -machine q35 -accel tcg,thread=single -cpu max -smp 2 -m 1024 \
		-display none -monitor none -nic none -no-reboot -serial "file:$2/console" \
		-serial "file:$2/results.tar.gz" -kernel "$1" -initrd "$work/initramfs" \
		-append "console=ttyS0 panic=-1 quiet" </dev/null >"$2/qemu" 2>&1 ||
		fault "qemu ended with $? (124: no end after $GUEST_LIMIT s)"
	tar -xz -C "$2" -f "$2/results.tar.gz" 2>/dev/null && return
	fault "no results; the console's last lines:"
	tail -n 15 "$2/console" "$2/qemu"
	return 1
}

# ended NAME: its command ended with 0.
ended() {
	status=$(cat "$1.status" 2>/dev/null || echo none)
	[ "$status" = 0 ] && return
	fault "$1 ended with $status: $(tail -n 3 "$1.err" 2>/dev/null | tr '\n' '|')"
	return 1
}

# profile NAME GRAPH OPTIONS...: a recording is whole and has only legal stacks.
profile() {
	name=$1 graph=$2
	shift 2
	ended "$name" || return 0
	python3 "$root/tests/e2e/check.py" "$name.json" --quiet --figures "$version $name" --graph "$graph" "$@" ||
		failed=1
}

# The verifier's figures are in libbpf's debug output.
check_load() {
	ended load || {
		grep -v '^libbpf: \(sec\|map\|CO-RE\|elf\|.*insn\)' load.err | tail -n 40
		return 0
	}
	echo "$version loads: $(sed -n 's/^\(verification time\|stack depth\|processed\)/\1/p' load.err | tr '\n' ' ')"
}

# The clock went back by decades: no second of the recording is missing or too many.
check_clock() {
	grep -q 2001 clock.date || fault "the clock was not set back: $(cat clock.date)"
	python3 -c 'import json, sys
seconds = json.load(open("clock.json"))["quality"]["seconds"]
sys.exit(not float(sys.argv[1]) - 1 <= seconds <= float(sys.argv[1]) + 30)' "$SECONDS_EACH" ||
		fault "the clock was set back: the recording says $(grep -o '"seconds": [0-9.]*' clock.json) s"
}

# The whole machine, without kernel frames.
check_all() {
	ended all || return 0
	grep -q 'main chunk (/workloads/mixed.lua:0);level .*;bottom (/workloads/mixed.lua:' all.folded ||
		fault "no Lua function in the recording of the whole machine"
	! grep -q '_\[k\]' all.folded || fault "kernel frames in spite of --no-kernel"
	echo "$version all: $(wc -l <all.folded) stacks"
}

# A dump shows the Lua functions that cannot be missing, and the C functions around them.
check_dump() {
	ended dump || return 0
	for text in 'main chunk' level via_gsub string.gsub stay; do
		grep -q -- "$text" dump.out || fault "no '$text' in dump"
	done
	python3 -m json.tool dump-json.out >/dev/null || fault "dump -j is no JSON"
	echo "$version dump: $(wc -l <dump.out) lines"
}

judge() {
	# An emulated machine on a busy one gets little done: that there are samples is enough.
	mixed=$root/tests/workloads/mixed.graph some=$((SECONDS_EACH * RATE / 10))
	check_load
	profile jit "$mixed" --inlined-hidden --min-samples $some
	profile nojit "$mixed" --min-samples $some
	profile syscalls "$here/syscalls.graph" --min-samples $some --contains '_\[k\]=20'
	profile clock "$mixed" --min-samples $some
	check_clock
	# The loader takes its time here.
	profile launched "$mixed" --inlined-hidden --min-samples $some --min-whole 99 --max-native 5
	# Stops are slow under emulation: fewer samples than asked for.
	profile ptrace-jit "$mixed" --inlined-hidden --min-samples 5
	profile ptrace-nojit "$mixed" --min-samples 5
	check_all
	check_dump
	[ ! -s dmesg ] || fault "the kernel complains: $(cat dmesg)"
}

make_initramfs
for suite in "$@"; do
	version=$suite
	kernel=$(find_kernel "$suite") || {
		fault "its kernel could not be fetched"
		continue
	}
	version=${kernel##*/vmlinuz-}
	boot "$kernel" "$work/$suite/out" || continue
	cd "$work/$suite/out"
	judge
	cd "$work"
done
exit $failed
