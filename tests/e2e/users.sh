#!/bin/sh
# SPDX-License-Identifier: MIT
# What users do: full disks, closed pipes, missing rights, signals. Each error has three parts and its exit
# code, what was collected is kept, and nothing stays attached.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need_program field
field=$PROGRAMS/field
chmod 711 "$work"
start "$work/t" "$field" spin 1 120
target=$!
count=0

# run STATUS TEXT COMMAND...: ends with STATUS, and standard error has TEXT.
run() {
	wanted=$1 text=$2 status=0
	shift 2
	timeout -k 5 60 "$@" >"$work/out" 2>"$work/err" || status=$?
	count=$((count + 1))
	[ "$status" = "$wanted" ] || fail "status $status, wanted $wanted: $*: $(cat "$work/err")"
	[ -z "$text" ] || grep -q -- "$text" "$work/err" || fail "no \"$text\" from $*: $(cat "$work/err")"
	# An error has three parts.
	if [ "$status" -gt 0 ] && [ "$status" -lt 100 ]; then
		grep -q "^    why: " "$work/err" || fail "no why: from $*: $(cat "$work/err")"
		grep -q "^    try: " "$work/err" || fail "no try: from $*: $(cat "$work/err")"
	fi
}
rec() {
	wanted_status=$1 wanted_text=$2
	shift 2
	run "$wanted_status" "$wanted_text" "$MOONSPY" record -r "$RATE" "$@"
}

# Disks. What was collected is somewhere.
export TMPDIR="$work/tmp"
mkdir "$work/tmp" "$work/small" "$work/gone"
if mount -t tmpfs -o size=4k tmpfs "$work/small" 2>/dev/null; then
	rec 1 "cannot write $work/small/p.html" -p "$target" -d 0.5s -o "$work/small/p.html"
	umount "$work/small"
	grep -q "the profile is in $work/tmp/" "$work/err" || fail "the profile is lost: $(cat "$work/err")"
	[ -s "$(sed -n 's/.*the profile is in \(.*\) instead$/\1/p' "$work/err")" ] || fail "it is not where it should be"
fi
rec 1 "cannot write" -p "$target" -d 0.5s -o "$work/no/such/p.html"
rec 1 "cannot write" -p "$target" -d 0.5s -o /proc/p.html
(sleep 0.9; rm -rf "$work/gone") &
rec 1 "the profile is in" -p "$target" -d 2s -o "$work/gone/p.html"
run 1 "cannot write to standard output" sh -c '"$@" >/dev/full' sh "$MOONSPY" record -p "$target" -d 0.5s -o - -f folded
run 0 "" sh -c '"$@" | head -n 1' sh "$MOONSPY" record -p "$target" -d 0.5s -o - -f folded
run 0 "" sh -c '"$@" | head -n 1' sh "$MOONSPY" dump -p "$target"

# Streams that are closed are not taken by what is opened.
run 0 "" sh -c '"$@" <&- >&- 2>&-' sh "$MOONSPY" record -p "$target" -d 0.5s -o "$work/c.folded"
grep -q moonspy: "$work/c.folded" && fail "talk in the profile: $(cat "$work/c.folded")"
grep -q "work (field)" "$work/c.folded" || fail "no profile with closed streams"
run 1 "cannot write to standard output" sh -c '"$@" >&-' sh "$MOONSPY" dump -p "$target"

# Pids.
rec 1 "there is no process 4194303" -p 4194303 -d 0.5s -o "$work/x.html"
run 1 "there is no process 4194303" "$MOONSPY" dump -p 4194303
run 1 "there is no process 4194303" "$MOONSPY" inspect -p 4194303
rec 1 "no process is called" -N "no such name" -d 0.5s -o "$work/x.html"

# Rights.
if setpriv --reuid=65534 --regid=65534 --clear-groups "$MOONSPY" --version >/dev/null 2>&1; then
	plain="setpriv --reuid=65534 --regid=65534 --clear-groups"
	mkdir -m 777 "$work/plain"
	# shellcheck disable=SC2086
	{
		run 5 "not permitted to look into process $target" $plain "$MOONSPY" record -p "$target" -d 0.5s -o "$work/plain/a.html"
		run 5 "not permitted to look into process $target" $plain "$MOONSPY" dump -p "$target"
		run 5 "not permitted to look into process $target" $plain "$MOONSPY" inspect -p "$target"
		run 5 "cannot start sampling" $plain "$MOONSPY" record --engine bpf -p "$target" -d 0.5s -o "$work/plain/b.html"
		run 5 "cannot start sampling" $plain "$MOONSPY" record -a -d 0.5s -o "$work/plain/b.html"
		run 0 "BPF cannot be used" $plain "$MOONSPY" record -r 499 -o "$work/plain/c.folded" -- "$field" spin 1 0.5
	}
	grep -q "work (field)" "$work/plain/c.folded" || fail "a plain user has no profile of an own command"
	caps="+bpf,+perfmon,+sys_ptrace"
	# shellcheck disable=SC2086
	run 0 "samples in" $plain --inh-caps=$caps --ambient-caps=$caps "$MOONSPY" record --engine bpf -r 499 \
		-p "$target" -d 0.5s -o "$work/plain/d.folded"
	grep -q "work (field)" "$work/plain/d.folded" || fail "no profile with capabilities"
fi

# Too many threads for the files that may be open: an error, not a part of them.
start "$work/t2" "$field" threads 300 60
threads=$!
sleep 1
run 1 "cannot sample process $threads" sh -c 'ulimit -n 200; "$@"' sh "$MOONSPY" record -p "$threads" -d 0.5s -o "$work/x.html"
run 0 "samples in" sh -c 'ulimit -S -n 200; "$@"' sh "$MOONSPY" record -r 999 -p "$threads" -d 1s -o "$work/y.html"
stop "$threads"

# Signals: the profile is written; a command that ignores them does not hold it.
python3 - "$MOONSPY" "$target" "$work" <<-'END' || fail "signals"
	import os, signal, subprocess, sys, time

	signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and stays it

	moonspy, target, work = sys.argv[1:]
	bad = 0

	def case(name, args, signals, wanted, profile=True):
	    global bad
	    path = "%s/%s.folded" % (work, name)
	    p = subprocess.Popen([moonspy, "record", "-q", "-r", "499", "-o", path, *args], stdin=subprocess.DEVNULL,
	                         stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
	    time.sleep(2)
	    for s in signals:
	        p.send_signal(s)
	        time.sleep(0.1)
	    try:
	        status = p.wait(10)
	    except subprocess.TimeoutExpired:
	        p.kill()
	        status = "none"
	    if status != wanted or os.path.exists(path) != profile:
	        print("%s: status %s, wanted %s; a profile: %s; %s" % (name, status, wanted, os.path.exists(path),
	                                                              p.stderr.read()))
	        bad = 1

	deaf = ["sh", "-c", "trap '' INT TERM; while :; do :; done"]
	case("int", ["-p", target], [signal.SIGINT], 0)
	case("term", ["-p", target], [signal.SIGTERM], 0)
	case("hup", ["-p", target], [signal.SIGHUP], 0)
	case("twice", ["-p", target], [signal.SIGINT, signal.SIGINT], 0)
	case("deaf", ["--", *deaf], [signal.SIGINT, signal.SIGINT], 130)
	case("killed", ["-p", target], [signal.SIGKILL], -9, False)
	case("killed-ptrace", ["--engine", "ptrace", "-p", target], [signal.SIGKILL], -9, False)
	sys.exit(bad)
END
for pid in $(pgrep -x sh); do
	tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q "trap '' INT TERM; while" && kill -KILL "$pid"
done

# Nothing is left of the killed: no file, no tracer, and the target runs.
find "$work" -name '*killed*' -o -name '*.moonspy-*' | grep -q . && fail "files of a killed recorder: $(ls "$work")"
grep -q "^TracerPid:[^0-9]*0$" "/proc/$target/status" || fail "the target is still traced"
state=$(sed -n 's/^State:[^A-Z]*\([A-Z]\).*/\1/p' "/proc/$target/status")
case $state in
R | S) ;;
*) fail "the target is in state $state" ;;
esac
left=none
if command -v bpftool >/dev/null; then
	# Others may be recording: what counts is programs that nobody holds.
	for id in $(bpftool prog list 2>/dev/null | sed -n 's/^\([0-9]*\): perf_event .*msp_on_event.*/\1/p'); do
		cat /proc/[0-9]*/fdinfo/* 2>/dev/null | grep -q "^prog_id:[^0-9]*$id$" ||
			! bpftool prog show id "$id" >/dev/null 2>&1 || left=$id
	done
fi
[ "$left" = none ] || fail "BPF program $left is still loaded"
stop "$target"
[ "$failed" = 1 ] || echo "users: $count situations and 7 signals: statuses, messages and profiles as they should be"
finish
