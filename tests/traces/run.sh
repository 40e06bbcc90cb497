#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: run.sh [PROGRAM...]. The frames that moonspy shows inside of compiled code, against what a LuaJIT built for it
# recorded (truth_record.c). Prints a line a program, and ends with 1 if a frame said to be certain was wrong.
#
# Environment: TEST_TRACES (the built test-traces), SAMPLES (1000) of each program, WHOLE ("PROGRAM=PERCENT...": of at
# least so many of its samples the certain frames must be the whole stack), LUAJIT (one that records, in place of one built
# here), ARCH (arm64: in qemu's user mode), EXACT (1: it makes tables of its traces; 99 % of the samples of each program
# must be certain as a whole, with the right line).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
: "${TEST_TRACES:=$root/build/tests/traces/test-traces}" "${SAMPLES:=1000}"
luajit=${LUAJIT:-$("$here/build.sh")} || exit $?
if [ "${ARCH:-}" = arm64 ]; then
	command -v qemu-aarch64-static >/dev/null || {
		echo "SKIP: there is no qemu-aarch64-static (scripts/packages arm64)"
		exit 77
	}
	ROOT=$("$root/scripts/sysroot" bookworm/arm64) || exit 77
	export ROOT EMULATOR=qemu-aarch64-static
fi
[ -z "${EXACT:-}" ] || export LUAJIT_TRACE_TABLES=1
[ $# -gt 0 ] || set -- $(cd "$here/programs" && ls ./*.lua | sed 's|./||; s|.lua$||')
work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-traces.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
failed=0
printf '%-18s%8s%7s%8s%8s%9s%8s%9s%7s\n' program samples judged wrong unknown complete stack function line
for name; do
	printf '%-18s ' "$name"
	status=0
	# asked for later, when many of its traces are gone
	case $name in
	flushes) late=4 ;;
	*) late=1 ;;
	esac
	LATE=$late timeout -k 5 300 "$TEST_TRACES" "$luajit" "$SAMPLES" "$here/programs/$name.lua" >"$work/out" 2>"$work/err" ||
		status=$?
	sed 's/^/ /' "$work/out"
	echo "$name $(cat "$work/out")" >>"$work/all"
	for bar in ${WHOLE:-}; do
		[ "${bar%=*}" != "$name" ] || awk -v least="${bar#*=}" '{ exit !($5 >= least) }' "$work/out" || {
			echo "   less than ${bar#*=} % certain as a whole"
			failed=1
		}
	done
	[ -z "${EXACT:-}" ] || awk '{ exit !($5 >= 99 && $7 >= 99 && $8 >= 99) }' "$work/out" || {
		echo "   there is a table, but not all is exact"
		failed=1
	}
	[ $status = 0 ] || {
		echo "   ended with $status"
		head -"${LINES_OF_ERRORS:-12}" "$work/err"
		failed=1
	}
done
awk '
	function add(g) { n[g] += $2; j[g] += $3; w[g] += $4; u[g] += $2 * $5; for (i = 6; i <= 9; i++) s[g, i] += $3 * $i }
	NF == 9 && $3 { add($1 ~ /^held_/ ? "held out" : "others"); add("all") }
	END {
		split("others,held out,all", groups, ",")
		for (k = 1; k <= 3; k++) {
			g = groups[k]
			if (!j[g]) continue
			printf "%-18s%8d%7d%8d%8.1f%9.1f%8.1f%9.1f%7.1f\n", g, n[g], j[g], w[g], u[g] / n[g],
				s[g, 6] / j[g], s[g, 7] / j[g], s[g, 8] / j[g], s[g, 9] / j[g]
		}
	}' "$work/all"
exit $failed
