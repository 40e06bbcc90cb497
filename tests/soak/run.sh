#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: run.sh [MINUTES]: records for so long (60), whole machine and one process, what makes a profiler
# grow: programs of 300 files that come and go, functions and traces that are made and dropped, libraries.
# Memory and open files are noted every 30 s, in soak-all.log and soak-pid.log. What they are in
# the last quarter must not be more than in the second, by a tenth, 2 MiB, and half of what the profile
# takes in the end: new stacks need room, and each process has its own. Less than an hour is only printed:
# what is remembered of functions and frames has not reached its bounds by then.
# Environment: MOONSPY, PROGRAMS, LUAJIT.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${MOONSPY:=$here/../../build/src/cli/moonspy}" "${LUAJIT:=luajit}"
: "${PROGRAMS:=$(dirname "$MOONSPY")/../../tests/workloads}"
minutes=${1:-60}

# Nothing but the load is to be seen: a pid namespace of its own.
if [ "${SOAK_INSIDE-}" != 1 ]; then
	SOAK_INSIDE=1 exec unshare -mpf --mount-proc --kill-child "$0" "$minutes"
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
(
	turn=0
	while [ "$(date +%s)" -lt "$end" ]; do
		nice -n 19 "$work/copy$((turn % 300))" spin 1 0.02 >/dev/null 2>&1
		turn=$((turn + 1))
		sleep 0.1
	done
	echo "$turn programs started"
) >"$work/turns" &
load=$!
sleep 1
"$MOONSPY" record -a -r 99 --stats -f msp -o "$work/all" --force 2>"$work/all.err" &
all=$!
"$MOONSPY" record -p $lua -r 999 --stats -f msp -o "$work/pid" --force 2>"$work/pid.err" &
pid=$!

# note NAME PID: seconds, KiB resident, KiB of these its own, open files
note() {
	echo "$(($(date +%s) - end + seconds))" \
		"$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$2/status")" \
		"$(sed -n 's/^RssAnon:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$2/status")" \
		"$(ls "/proc/$2/fd" | wc -l)" >>"soak-$1.log"
}
rm -f soak-all.log soak-pid.log
while [ "$(date +%s)" -lt "$end" ]; do
	note all $all
	note pid $pid
	sleep $((minutes < 5 ? 2 : 30))
done
kill -TERM $all $pid
status=0
wait $all || status=$?
wait $pid || status=$?
kill -KILL $lua 2>/dev/null || :
wait $load || :
cat "$work/turns" "$work/all.err" "$work/pid.err"
[ $status = 0 ] || echo "FAIL: moonspy ended with $status"
for name in all pid; do
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
