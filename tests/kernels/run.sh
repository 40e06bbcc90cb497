#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: run.sh [SUITE...]
#
# Boots the kernel of each Debian suite (bullseye: 5.10, bookworm: 6.1, trixie: 6.12) in an
# emulated machine, records and dumps there, and holds the profiles against the workloads'
# call graphs here. The guests' LuaJIT is bookworm's; those of arm64 have their suite's own.
#
# Environment: see guest.sh; and SECONDS_EACH (5), RATE (199).
# Ends with 0 (as asked), 1 (not) or 77 (cannot run here).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${SECONDS_EACH:=5}" "${RATE:=199}"
[ $# -gt 0 ] || set -- bullseye bookworm trixie
. "$here/guest.sh"

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
	echo "$version has$([ -e cycles ] || echo " no") counter of cycles"
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
	# The loader takes its time here. So does moonspy, to learn what has been loaded: as many more samples lack it.
	profile launched "$mixed" --inlined-hidden --min-samples $some --min-whole 99 --max-native 5 --max-start $((10 * SLOW))
	# Stops are slow under emulation: fewer samples than asked for.
	profile ptrace-jit "$mixed" --inlined-hidden --min-samples 5
	profile ptrace-nojit "$mixed" --min-samples 5
	check_all
	check_dump
	[ ! -s dmesg ] || fault "the kernel complains: $(cat dmesg)"
}

for suite in "$@"; do
	version=$suite
	kernel=$(find_kernel "$suite") || {
		fault "its kernel could not be fetched"
		continue
	}
	version=${kernel##*/vmlinuz-}
	# Of arm64: an old processor; one with pointer authentication; the same without a counter of cycles.
	luajit=$suite cpu=max
	case $ARCH-$suite in
	amd64-*) luajit=bookworm ;;
	*-bullseye) cpu=cortex-a57 ;;
	*-trixie) cpu=max,pmu=off ;;
	esac
	make_guest "$luajit" "$here/record"
	echo "SECONDS_EACH=$SECONDS_EACH RATE=$RATE" >>"$guest/config"
	pack_guest
	boot "$kernel" "$work/$suite/out" || continue
	cd "$work/$suite/out"
	judge
	cd "$work"
done
exit $failed
