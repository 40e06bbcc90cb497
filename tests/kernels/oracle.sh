#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: oracle.sh [SUITE...]
#
# The stepping oracle (tests/conformance) in emulated machines, for ARCH=arm64: with the kernel and the
# LuaJIT of each Debian suite, all workloads, but fewer steps.
#
# Environment: see guest.sh; and STEPS (of each, 3000), NAMES ("NAME-jit NAME-nojit ...").
# Ends with 0 (no faults, all stacks legal), 1 (not) or 77 (cannot run here).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${STEPS:=3000}" "${ARCH:=arm64}"
[ $# -gt 0 ] || set -- bookworm trixie
. "$here/guest.sh"
[ -x "$build/tests/conformance/oracle" ] || skip "no oracle in $build (make ARM64=1 tests)"

all_names() {
	for name in $(cd "$root/tests/workloads" && grep -l '^include luajit.graph' -- *.graph | sed 's/\.graph$//') \
		signals traces+signals vms-nested vms-turns vms-threads vms-passed; do
		echo "$name-jit $name-nojit"
	done
	echo fork-jit library-jit
}
: "${NAMES:=$(all_names | tr '\n' ' ')}"

# One file has a workload's figures, another its distinct stacks, a third how to judge these.
judge() {
	for name in $NAMES; do
		title="${name%-*} ${name##*-}"
		status=$(cat "$title.status" 2>/dev/null || echo none)
		cat "$title.out" 2>/dev/null || :
		[ "$status" = 0 ] || fault "$title ended with $status: $(tail -n 3 "$title.err" 2>/dev/null)"
		[ -e "$title.check" ] || continue
		read -r graph mode <"$title.check"
		python3 "$root/tests/conformance/oracle_check.py" "$title.json" "$root/tests/workloads/$graph" "$mode" ||
			fault "$title: illegal stacks"
	done
	[ ! -s dmesg ] || fault "the kernel complains: $(cat dmesg)"
}

for suite in "$@"; do
	version=$suite
	if [ "$suite" = bullseye ]; then
		echo "bullseye: not stepped: its C library takes locks by loops that a step never leaves (ldxr, stxr)"
		continue
	fi
	kernel=$(find_kernel "$suite") || {
		fault "its kernel could not be fetched"
		continue
	}
	version=${kernel##*/vmlinuz-}
	make_guest "$suite" "$here/step" libluajit-5.1-2
	mkdir -p "$guest/tests/conformance" "$guest/programs"
	ln -s ../workloads "$guest/tests/workloads"
	cp "$root"/tests/workloads/*.graph "$guest/workloads"
	cp "$root/tests/conformance/oracle.sh" "$guest/tests/conformance"
	cp "$build/tests/conformance/oracle" "$guest/oracle"
	for program in embed vms processes library handlers.so; do
		cp "$build/tests/workloads/$program" "$guest/programs"
	done
	echo "STEPS=$STEPS NAMES='$NAMES'" >>"$guest/config"
	pack_guest
	boot "$kernel" "$work/$suite/out" || continue
	cd "$work/$suite/out"
	judge
	cd "$work"
done
exit $failed
