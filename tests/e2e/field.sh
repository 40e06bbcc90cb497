#!/bin/sh
# SPDX-License-Identifier: MIT
# Targets that are hard to follow: each gives a profile of what was there, and is not disturbed.
# Then what a minute of it costs: memory and open files do not grow (MEMORY_SECONDS, 8 s here).
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need_program field
field=$PROGRAMS/field
figures=

# samples NAME MINIMUM MIN_WHOLE: of the last recording.
samples() {
	python3 - "$work/p" "$@" <<-'END' >"$work/figures" || fail "$(cat "$work/figures")"
		import json, sys
		path, name, least, whole = sys.argv[1:5]
		profile = json.load(open(path))
		q = profile["quality"]
		work = sum(s["count"] for s in profile["stacks"] if any(f["name"] == "work" for f in s["frames"]))
		share = 100 * q["whole"] / max(q["samples"], 1)
		print("%s %d (%.1f %%)" % (name, q["samples"], share))
		sys.exit(0 if q["samples"] >= int(least) and share >= float(whole) and (work or int(least) == 0) else 1)
	END
	figures="$figures, $(cat "$work/figures")"
}

record "$work/p" -- "$field" mappings 5000 1
samples "5,000 mappings" 100 98
record "$work/p" -- "$field" threads 500 2
samples "500 threads" 50 90
start "$work/t" "$field" threads 500 30
sleep 1
record "$work/p" -p $! -d 1s
samples "attached" 20 90
stop $!
record "$work/p" -- "$field" churn 20 1
samples "churn" 50 85
record "$work/p" -- "$field" exec 20 0.03
samples "exec itself" 100 75
record "$work/p" -- "$field" become 0 0.3 "$field" spin 1 0.3
samples "exec another" 50 90
record "$work/p" -s -- "$field" children 5 1
samples "children of 1 ms" 20 85
grep -q "failed 0" "$work/p.out" || fail "the children were disturbed: $(cat "$work/p.out")"
record_within 60 "$work/p" -- "$field" spin 1 0.02 || [ $? = 3 ] || fail "20 ms: status $?"
record "$work/p" -- "$field" hidden 0 0.5
samples "not dumpable" 20 95

start "$work/t" "$field" spin 1 30
target=$!
(sleep 1.5; kill -STOP "$target"; sleep 0.5; kill -CONT "$target"; sleep 0.5; kill -KILL "$target") &
record "$work/p" -p "$target"
samples "stopped, killed" 50 95
wait "$target" 2>/dev/null || :
start "$work/t" "$field" spin 1 30
target=$!
kill -STOP "$target"
record_within 60 "$work/p" -p "$target" -d 0.3s && fail "a stopped process gave samples"
grep -q "it is stopped" "$work/p.err" || fail "not told that it is stopped: $(cat "$work/p.err")"
kill -CONT "$target"

# Several at once on one target.
for i in 1 2 3; do
	start "$work/r$i" "$MOONSPY" record -r "$RATE" -p "$target" -d 1s -f folded -o "$work/f$i" -q
	eval "r$i=\$!"
done
# shellcheck disable=SC2154
for pid in $r1 $r2 $r3; do
	wait "$pid" || fail "one of three at once ended with $?"
done
for i in 1 2 3; do
	[ "$(grep -c work "$work/f$i")" -gt 0 ] || fail "nothing in the profile of recorder $i of three"
done

# Another pid and mount namespace, the program deleted; moonspy inside of one; another clock.
if unshare -mpf --mount-proc true 2>/dev/null; then
	# shellcheck disable=SC2016
	start "$work/t" unshare -mpf --mount-proc sh -c 'mount -t tmpfs tmpfs /mnt; cp "$1" /mnt/inner
		/mnt/inner spin 1 20 & sleep 0.3; rm /mnt/inner; echo ready; wait' sh "$field"
	wait_for "$work/t" ready
	record "$work/p" -N inner -d 3s
	samples "in a container" 50 95
	# shellcheck disable=SC2016
	unshare -mpf --mount-proc sh -c '"$2" spin 1 20 >/dev/null & exec "$1" record -r 999 -p $! -d 3s -f json -o "$3" --force -q' \
		sh "$MOONSPY" "$field" "$work/p" || fail "inside of a container: status $?"
	samples "from a container" 20 95
	# shellcheck disable=SC2016
	unshare -mpf --mount-proc sh -c 'unshare -mpf --mount-proc "$2" spin 1 20 >/dev/null & sleep 0.3
		exec "$1" record -r 999 -N "$(basename "$2")" -d 3s -f json -o "$3" --force -q' \
		sh "$MOONSPY" "$field" "$work/p" || fail "from a container into another: status $?"
	samples "from a container into another" 20 95
	# shellcheck disable=SC2016
	unshare -mpf --mount-proc "$MOONSPY" record -r 999 -s -f json -o "$work/p" --force -q -- "$field" children 5 1 ||
		fail "children in a container: status $?"
	samples "children of 1 ms in a container" 20 85
fi
if unshare -T --boottime 1 true 2>/dev/null; then
	unshare -T --boottime 100000 --monotonic 100000 "$MOONSPY" record -r 999 -f json -o "$work/p" --force -q -- \
		"$field" spin 1 2 || fail "with another clock: status $?"
	samples "another clock" 20 95
fi
stop "$target"

# 200 processes, all of them found, none in the way.
for _ in $(seq 200); do
	"$field" threads 1 8 >/dev/null 2>&1 &
	started="$started $!"
done
record "$work/p" -a -d 1s
samples "200 processes" 50 20
for pid in $started; do
	kill -KILL "$pid" 2>/dev/null || :
done
wait

# Memory and files of a long recording with children that come and go.
start "$work/t" "$field" children 5 60
target=$!
start "$work/r" "$MOONSPY" record -s -r "$RATE" -p "$target" -f json -o "$work/p" --force
recorder=$!
sleep 3
before=$(ls "/proc/$recorder/fd" | wc -l)
rss=$(sed -n 's/^RssAnon:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$recorder/status")
sleep "${MEMORY_SECONDS:-8}"
after=$(ls "/proc/$recorder/fd" | wc -l)
rss2=$(sed -n 's/^RssAnon:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$recorder/status")
peak=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$recorder/status")
kernel=$(for f in "/proc/$recorder/fdinfo/"*; do sed -n 's/^memlock:[^0-9]*//p' "$f" 2>/dev/null || :; done |
	awk '{ sum += $1 } END { print int(sum / 1048576) }')
kill -TERM "$recorder"
wait "$recorder" || fail "the long recording ended with $?"
kill -KILL "$target"
wait "$target" 2>/dev/null || :
[ "$after" -lt $((before + 100)) ] || fail "open files grow: $before, then $after"
case $MOONSPY in
*asan*) ;;
*) [ "$peak" -lt 65536 ] || fail "$peak KiB at the peak, wanted under 64 MiB" ;;
esac
echo "field: samples (whole): ${figures#, }"
echo "field: children for ${MEMORY_SECONDS:-8} s: $before, then $after files open; $rss, then $rss2 KiB of its own;" \
	"$peak KiB at the peak; $kernel MiB of BPF maps"
finish
