#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: run.sh [MINUTES]: records for so long (60) what makes a profiler grow: functions and traces that are
# made and dropped, libraries, programs of 300 files that come and go. Three recordings: of all of it, of the
# LuaJIT, and of the programs alone, so that each of them would show if it left something behind.
# Memory and open files are noted every 30 s, in soak-all.log, soak-pid.log and soak-programs.log. What they are
# in the last quarter must not be more than in the second, by a tenth, 2 MiB, and half of what the profile
# takes in the end: new stacks need room, and each process has its own. Less than an hour is only printed:
# what is remembered of functions and frames has not reached its bounds by then.
# Environment: MOONSPY, PROGRAMS, LUAJIT.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${MOONSPY:=$here/../../build/src/cli/moonspy}" "${LUAJIT:=luajit}"
: "${PROGRAMS:=$(dirname "$MOONSPY")/../../tests/workloads}"
minutes=${1:-60}

# note NAME PID: seconds, KiB resident, KiB of these its own, open files
note() {
	echo "$(($(date +%s) - end + seconds))" \
		"$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$2/status")" \
		"$(sed -n 's/^RssAnon:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$2/status")" \
		"$(ls "/proc/$2/fd" | wc -l)" >>"soak-$1.log"
}

# watch NAME PID...: notes them until the time is over, and ends them.
watch() {
	while [ "$(date +%s)" -lt "$end" ]; do
		for name_pid in "$@"; do
			note "${name_pid%:*}" "${name_pid#*:}"
		done
		sleep $((minutes < 5 ? 2 : 30))
	done
	for name_pid in "$@"; do
		kill -TERM "${name_pid#*:}"
	done
	for name_pid in "$@"; do
		wait "${name_pid#*:}" || echo "FAIL: record ended with $?" >>"$work/${name_pid%:*}.err"
	done
}

# record NAME OPTIONS...: in the background; $! is its pid.
record() {
	record_name=$1
	shift
	rm -f "soak-$record_name.log"
	"$MOONSPY" record --stats -f msp -o "$work/$record_name" --force "$@" 2>"$work/$record_name.err" &
}

# In their own pid namespace: programs, and a recording of nothing else.
if [ "${SOAK_PART-}" = programs ]; then
	work=$SOAK_WORK end=$SOAK_END seconds=$((minutes * 60))
	(
		turn=0
		while [ "$(date +%s)" -lt "$end" ]; do
			nice -n 19 "$work/copy$((turn % 300))" spin 1 0.02 >/dev/null 2>&1
			turn=$((turn + 1))
			sleep 0.1
		done
		echo "$turn programs started" >"$work/turns"
	) &
	record programs -a -r 99
	watch programs:$!
	wait
	exit
fi

# Nothing but the load is to be seen: a pid namespace of its own.
if [ "${SOAK_PART-}" != all ]; then
	SOAK_PART=all exec unshare -mpf --mount-proc --kill-child "$0" "$minutes"
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-soak.XXXXXX")
trap 'rm -rf "$work"' EXIT
seconds=$((minutes * 60))
end=$(($(date +%s) + seconds))
python3 - "$PROGRAMS/field" "$work" <<'END'
import os, sys
data = bytearray(open(sys.argv[1], "rb").read())
at = data.find(b"\4\0\0\0\x14\0\0\0\3\0\0\0GNU\0")
assert at > 0, "no build id"
for i in range(300):
    data[at + 16 : at + 24] = i.to_bytes(8, "little")
    path = "%s/copy%d" % (sys.argv[2], i)
    open(path, "wb").write(data)
    os.chmod(path, 0o755)
END

nice -n 19 "$LUAJIT" "$here/load.lua" $((seconds + 60)) &
lua=$!
SOAK_PART=programs SOAK_WORK=$work SOAK_END=$end unshare -mpf --mount-proc --kill-child "$0" "$minutes" &
programs=$!
sleep 1
record all -a -r 99
all=$!
record pid -p $lua -r 999
watch all:$all pid:$!
kill -KILL $lua 2>/dev/null || :
wait $programs || :
status=0
cat "$work/turns" "$work/all.err" "$work/pid.err" "$work/programs.err"
! grep -q "^FAIL" "$work"/*.err || status=1
for name in all pid programs; do
	profile=$(sed -n 's/^ *\([0-9.]*\)  MiB that the profile takes$/\1/p' "$work/$name.err")
	python3 - "$name" "soak-$name.log" "${profile:-0}" <<'END' || [ "$minutes" -lt 60 ] || status=1
import sys
data = 1024 * float(sys.argv[3]) / 2
rows = [list(map(int, line.split())) for line in open(sys.argv[2])]
n, bad = len(rows), []
for what, column, room in ("KiB resident", 1, 2048 + data), ("KiB of its own", 2, 2048 + data), ("open files", 3, 20):
    values = [row[column] for row in rows]
    second, last = max(values[n // 4 : n // 2]), max(values[3 * n // 4 :])
    print("%s: %s: %d at first, %d at last, %d at most; second quarter %d, last %d" %
          (sys.argv[1], what, values[0], values[-1], max(values), second, last))
    if last > 1.1 * second + room:
        bad.append(what)
if bad:
    print("FAIL: %s grows: %s" % (sys.argv[1], ", ".join(bad)))
sys.exit(1 if bad else 0)
END
done
[ "$minutes" -ge 60 ] || echo "less than an hour: the figures decide nothing"
exit $status
