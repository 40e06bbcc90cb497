# SPDX-License-Identifier: MIT
# shellcheck shell=sh
# What the end-to-end tests share. Sourced by each after `set -eu`; $0 is the test.
#
# Environment: MOONSPY (the program), PROGRAMS (folder of the built C workloads),
# LUAJIT (luajit), RATE (999), SECONDS_EACH (time of one recording), KEEP=1 (keep the temporary folder).
# Each test prints one line of figures a recording and ends with 0 (as asked), 1 (not) or 77
# (cannot run here, the reason printed).

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck disable=SC2034 # the tests use it
workloads=$root/tests/workloads
: "${MOONSPY:=$root/build/src/cli/moonspy}" "${PROGRAMS:=$(dirname "$MOONSPY")/../../tests/workloads}"
: "${LUAJIT:=luajit}" "${RATE:=999}" "${SECONDS_EACH:=}"

work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-e2e.XXXXXX")
started=
failed=0

cleanup() {
	for pid in $started; do
		kill -KILL "$pid" 2>/dev/null || :
	done
	if [ "${KEEP-}" = 1 ]; then
		echo "kept: $work" >&2
	else
		rm -rf "$work"
	fi
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

skip() {
	echo "SKIP: $*"
	exit 77
}

need() {
	for tool in "$@"; do
		command -v "$tool" >/dev/null || skip "$tool is not installed"
	done
}

# Sampling needs root here; a build without the recorder is no failure of the test.
need_record() {
	[ -x "$MOONSPY" ] || skip "no moonspy at $MOONSPY"
	[ "$(id -u)" = 0 ] || skip "not root: the kernel does not let a plain user sample"
	need python3
	if "$MOONSPY" record -f folded -o - -- true 2>&1 | grep -q "not there yet"; then
		skip "this moonspy cannot record"
	fi
}

need_program() {
	for program in "$@"; do
		[ -x "$PROGRAMS/$program" ] || skip "$program is not built (libluajit-5.1-dev?)"
	done
}

exec 3>&1
fail() {
	echo "FAIL: $*" >&3
	failed=1
}

finish() {
	exit "$failed"
}

# start OUTPUT COMMAND...: in the background; $! is its pid.
start() {
	start_output=$1
	shift
	"$@" >"$start_output" 2>&1 &
	started="$started $!"
}

# stop PID: a program of start() ends, and is waited for.
stop() {
	kill -TERM "$1" 2>/dev/null || :
	wait "$1" 2>/dev/null || :
	remaining=
	for stop_pid in $started; do
		[ "$stop_pid" = "$1" ] || remaining="$remaining $stop_pid"
	done
	started=$remaining
}

# wait_for FILE TEXT: until a line of FILE holds TEXT, a minute at most.
wait_for() {
	for _ in $(seq 600); do
		grep -q -- "$2" "$1" 2>/dev/null && return 0
		sleep 0.1
	done
	echo "no \"$2\" in $1 after a minute:"
	cat "$1"
	exit 1
}

# record_within LIMIT OUT ARGS...: records to json; standard error goes to OUT.err. Returns its status.
record_within() {
	record_limit=$1 record_out=$2
	shift 2
	record_status=0
	timeout -k 5 "$record_limit" "$MOONSPY" record -r "$RATE" -f json -o "$record_out" --force "$@" \
		>"$record_out.out" 2>"$record_out.err" </dev/null || record_status=$?
	return "$record_status"
}

# record OUT ARGS...: the same, must end with 0 within two minutes.
record() {
	record_within 120 "$@" && return 0
	echo "moonspy record ended with $?:"
	cat "$1.err"
	exit 1
}

# check NAME PROFILE OPTIONS...: prints its line, and more only when something is wrong.
check() {
	check_name=$1
	shift
	python3 "$here/check.py" "$@" --quiet --figures "$check_name" || failed=1
}

# has_line FILE TEXT: exactly one line of FILE holds TEXT.
has_line() {
	found=$(grep -c -i -- "$2" "$1" || :)
	[ "$found" = 1 ] || fail "$found lines with \"$2\" in $(basename "$1"), wanted one: $(tr '\n' '|' <"$1")"
}

# jit_options MODE: functions inlined into traces may be missing; without the JIT its states are never seen.
jit_options() {
	if [ "$1" = nojit ]; then
		echo "--lacks jit.compiler|trace.exit|_.j."
	else
		echo "--inlined-hidden"
	fi
}
