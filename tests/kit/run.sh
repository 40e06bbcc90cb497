#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: run.sh [DIR...]. The instrumentation kit on LuaJIT source trees: Debian's package of SUITE (bookworm), or those given.
# Each is edited, edited again, put back, built, and its descriptor, helpers and probes are tried. Exit 77: cannot be had.
#
# Environment: KIT (folder of the built test programs), MOONSPY (the program), COUNT (2000) signals that interrupt a VM,
# MOMENTS (500) at which it is read from another process.
# PROGRAMS of tests/traces (a few; empty: all), SAMPLES (200) of each.
# TOOLS: who listens to the probes; bpftrace and perf take longer (gdb kit-usdt).
# CROSS=aarch64-linux-gnu-: built for arm64, run by qemu's user mode.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
: "${KIT:=$root/build/tests/kit}" "${MOONSPY:=$root/build/src/cli/moonspy}" "${COUNT:=2000}" "${MOMENTS:=500}" "${SUITE:=bookworm}" \
	"${PROGRAMS=hash metamethods objects sort}" "${SAMPLES:=200}"
export SAMPLES

skip() {
	echo "SKIP: $*" >&2
	exit 77
}

fail() {
	echo "FAIL: $*" >&2
	exit 1
}

: "${CROSS:=}" "${TOOLS:=gdb kit-usdt}"
for tool in make cc gdb readelf dpkg-source; do
	command -v $tool >/dev/null || skip "needs $tool"
done
work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-kit.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
. "$here/tree.sh"
[ $# -gt 0 ] || {
	debian_tree "$SUITE"
	set -- "$tree"
}

# Exactly once, nothing the second time, and back to what it was; a place that is gone or there twice changes nothing.
edits() {
	cp -a "$1" "$work/tree"
	"$apply" "$work/tree" --check >/dev/null
	diff -r "$1" "$work/tree" >&2 || fail "--check changed something"
	"$apply" "$work/tree" >/dev/null
	cp -a "$work/tree" "$work/once"
	"$apply" "$work/tree" >/dev/null
	diff -r "$work/once" "$work/tree" >&2 || fail "a second time changed something"
	"$apply" "$work/tree" --revert >/dev/null
	diff -r "$1" "$work/tree" >&2 || fail "--revert left something"
	for file in lj_gc.c lj_trace.c; do
		cp "$work/tree/src/$file" "$work/kept"
		sed -i 's/^  setvmstate(g, GC);$/&\n&/; s/^  exd.J = J;$/  exd.J=J;/' "$work/tree/src/$file"
		cp -a "$work/tree" "$work/broken"
		! "$apply" "$work/tree" >/dev/null 2>"$work/reason" || fail "$file is edited though a place is not there once"
		grep -q "^$file: [02] places" "$work/reason" || fail "the reason is not said: $(cat "$work/reason")"
		diff -r "$work/broken" "$work/tree" >&2 || fail "something was changed though a place is not there once"
		rm -rf "$work/broken"
		cp "$work/kept" "$work/tree/src/$file"
	done
	rm -rf "$work/tree" "$work/once"
	echo "edits: made once, and taken back"
}

# The same tables as moonspy uses them: PROGRAMS of tests/traces, stopped at random.
exact() {
	echo "moonspy with these tables:"
	LD_LIBRARY_PATH=$1 LUAJIT=$1/luajit EXACT=1 TEST_TRACES=$KIT/../traces/test-traces "$root/tests/traces/run.sh" $PROGRAMS
}

# moonspy takes it as evidence, by the symbol or by the note, and proves it on a program that runs.
inspect() {
	"$here/inspect.py" "$MOONSPY" "by its symbol" "$1/libluajit.so"
	"$here/inspect.py" "$MOONSPY" "by its note" "$1/static"
	[ -z "$CROSS" ] || return 0
	"$here/vms.py" "$MOONSPY" "$KIT/kit-vms" "$1/libluajit.so"
	rm -f "$work/wait"
	mkfifo "$work/wait"
	"$1/static" -e 'io.read()' <"$work/wait" &
	pid=$!
	exec 8>"$work/wait"
	tries=0
	until "$MOONSPY" inspect -j -p $pid >"$work/process" 2>&1 && grep -q '"proved": *true' "$work/process"; do
		tries=$((tries + 1))
		[ $tries -lt 100 ] || fail "not proved: $(cat "$work/process")"
		sleep 0.2
	done
	exec 8>&-
	wait $pid
	echo "inspect: proved on a program that runs"
}

# The companion's helpers, built for this machine, on a core file of the other's.
foreign_core() {
	[ ! -f "$built_here/src/companion/libmoonspy-vm.so" ] ||
		python3 "$here/foreign_core.py" "$built_here/tests/companion/remote" "$built_here/src/companion/libmoonspy-vm.so" "$1" $emulator
}

# TOOL LUAJIT FILE
listen() {
	python3 "$here/probes.py" "$1" "$2" "$3" "$here/probes.lua" || [ $? = 77 ] || fail "probes"
}

probes() {
	for tool in $TOOLS; do
		[ $tool != kit-usdt ] || tool=$KIT/$tool
		listen $tool "$1/luajit" "$1/libluajit.so"
		# gdb needs main's symbol to begin.
		[ $tool != gdb ] || continue
		listen $tool "$1/static" "$1/static"
		listen $tool "$1/stripped/luajit" "$1/stripped/libluajit-5.1.so.2"
	done
	"$here/record.py" "$MOONSPY" "$1/luajit" "$1/libluajit.so" "$KIT/kit-comes" || [ $? = 77 ] || fail "record --probes"
}

built_here=$KIT/../..
cross_programs constants signals tables
for tree; do
	echo "$tree" | sed "s|^$cache/kit/||"
	edits "$tree"
	build "$tree"
	library=$built/src/libluajit.so
	"$here/notes.py" "$root/include/moonspy/vm_descriptor.h" "jit live probes note" "$library" \
		"$built/src/static" "$built/src/stripped/libluajit-5.1.so.2"
	"$here/constants.py" "$library" $emulator "$KIT/kit-constants"
	[ -n "$CROSS" ] || [ ! -f "$KIT/../../src/companion/libmoonspy-vm.so" ] ||
		"$here/../companion/compiled.py" "$KIT/../.." "$KIT/kit-constants" "$library"
	$emulator "$KIT/kit-signals" "$library" "$here/work.lua" "$COUNT"
	[ -n "$CROSS" ] || "$KIT/kit-reader" "$library" "$here/work.lua" "$MOMENTS"
	[ -z "$CROSS" ] || foreign_core "$built/src/luajit"
	$emulator "$KIT/kit-tables" "$library" "$here/work.lua" 60
	inspect "$built/src"
	[ -n "$CROSS" ] || exact "$built/src"
	[ -n "$CROSS" ] || probes "$built/src"
done
