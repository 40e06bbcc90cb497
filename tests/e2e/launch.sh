#!/bin/sh
# SPDX-License-Identifier: MIT
# Launch mode: the command's streams and status are its own; ends with it; Ctrl-C and SIGTERM write the
# profile; exit codes of failures; nothing is written where nothing was collected.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need "$LUAJIT"

expect() {
	status=0
	wanted=$1
	shift
	"$@" || status=$?
	[ "$status" = "$wanted" ] || fail "status $status, wanted $wanted: $*"
}
quiet_record() {
	timeout -k 5 30 "$MOONSPY" record -r "$RATE" "$@" 2>"$work/err"
}
busy='local t = os.clock() while os.clock() - t < 0.3 do end'

expect 0 quiet_record -f json -o "$work/a" -- "$LUAJIT" -e "$busy io.write('out')" >"$work/out"
[ "$(cat "$work/out")" = out ] || fail "standard output is not the command's: $(cat "$work/out")"
expect 7 quiet_record -f json -o "$work/b" -- "$LUAJIT" -e "$busy os.exit(7)"
[ -s "$work/b" ] || fail "no profile of a command that ended with 7"
echo "to the command" >"$work/in"
expect 0 quiet_record -f json -o "$work/c" -- "$LUAJIT" -e "$busy io.write(io.read('*a'))" <"$work/in" >"$work/out"
[ "$(cat "$work/out")" = "to the command" ] || fail "standard input did not reach the command"
expect 143 quiet_record -f json -o "$work/d" -- sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; kill -TERM $$'
expect 127 quiet_record -f json -o "$work/e" -- "$work/no-such-program"
[ ! -e "$work/e" ] || fail "a profile of a command that does not exist"

# Never overwrites without --force.
expect 1 quiet_record -f json -o "$work/a" -- "$LUAJIT" -e "$busy"
# A process that uses no CPU: no file, status 3, and a reason.
start "$work/sleep" sleep 30
sleeper=$!
expect 3 quiet_record -f json -o "$work/f" -p "$sleeper" -d 1s
[ ! -e "$work/f" ] || fail "an empty profile was written"
grep -q "0 samples" "$work/err" || fail "an empty profile in silence: $(cat "$work/err")"
stop "$sleeper"
# A command that waits is waited for as one that works, and its status is the answer.
expect 9 quiet_record -o "$work/f" -f json -d 300ms -- sh -c "sleep 1; : >'$work/ended'; exit 9"
[ -e "$work/ended" ] || fail "a command that used no CPU was left alone"
# The name of a file that the user did not name.
(cd "$work" && expect 0 quiet_record -- "$LUAJIT" -e "$busy")
written=$(sed -n 's/^moonspy: wrote //p' "$work/err")
[ -s "$work/$written" ] || fail "the profile's name is not told: $(cat "$work/err")"
# No such process; wrong usage.
expect 1 quiet_record -f json -o "$work/g" -p 4194303 -d 1s
expect 2 quiet_record --no-such-option -- true

# Ctrl-C and SIGTERM.
start "$work/long" "$LUAJIT" "$workloads/truth.lua" 30 jit
target=$!
for signal in INT TERM; do
	# A shell without job control lets its background jobs ignore SIGINT.
	start "$work/rec" python3 -c '
import signal, subprocess, sys, time
p = subprocess.Popen(sys.argv[2:], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
time.sleep(6)
p.send_signal(getattr(signal, "SIG" + sys.argv[1]))
sys.exit(p.wait(20))' "$signal" "$MOONSPY" record -r "$RATE" -f json -o "$work/$signal" -p "$target"
	expect 0 wait $!
	check "ended by SIG$signal" "$work/$signal" --graph "$workloads/truth.graph" --min-samples 300 --inlined-hidden
done
kill -0 "$target" 2>/dev/null || fail "the target is gone"
stop "$target"
[ "$failed" = 1 ] || echo "launch: streams, statuses and ends as they should be"
finish
