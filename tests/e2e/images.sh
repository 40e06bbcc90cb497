#!/bin/sh
# SPDX-License-Identifier: MIT
# Programs that come and go, each another file (PROGRAMS_EACH, 160 here; ROUNDS, 2 here), under
# record -a: what is kept of them does not grow without end, and the later ones are sampled as well.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need_program field
: "${PROGRAMS_EACH:=160}" "${ROUNDS:=2}"

# Copies that differ in their build id.
python3 - "$PROGRAMS/field" "$work" "$PROGRAMS_EACH" <<'END'
import os, sys
data = bytearray(open(sys.argv[1], "rb").read())
at = data.find(b"\4\0\0\0\x14\0\0\0\3\0\0\0GNU\0")
assert at > 0, "no build id"
for i in range(int(sys.argv[3])):
    data[at + 16 : at + 24] = i.to_bytes(8, "little")
    path = "%s/copy%d" % (sys.argv[2], i)
    open(path, "wb").write(data)
    os.chmod(path, 0o755)
END

start "$work/r" "$MOONSPY" record -a -r "$RATE" -f json -o "$work/p" --force
recorder=$!
open_copies() {
	ls -l "/proc/$recorder/fd" 2>/dev/null | grep -c "$work/copy" || :
}
own_memory() {
	sed -n 's/^RssAnon:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$recorder/status"
}
# It samples once it has seen one of them.
start "$work/t" "$work/copy0" spin 1 60
first=$!
for _ in $(seq 100); do
	[ "$(open_copies)" = 0 ] || break
	sleep 0.1
done
[ "$(open_copies)" != 0 ] || fail "the first program was not seen within 10 s"
stop "$first"
rss=
for round in $(seq "$ROUNDS"); do
	for i in $(seq "$PROGRAMS_EACH"); do
		"$work/copy$((i - 1))" spin 1 0.03 >/dev/null 2>&1
	done
	rss="$rss $(own_memory)"
done
# Those not used for two seconds go, but for 128: see src/target/images.c.
for _ in $(seq 100); do
	left=$(open_copies)
	[ "$left" -gt 128 ] || break
	sleep 0.1
done
rss="$rss $(own_memory)"
kill -TERM "$recorder"
wait "$recorder" || fail "moonspy ended with $?: $(cat "$work/r")"
[ "$left" -le 128 ] || fail "$left of $PROGRAMS_EACH programs are still open"
[ "$left" -gt 0 ] || fail "none is kept"

# Of the last quarter of the programs as many samples as of the first, and as good ones.
python3 - "$work/p" "$PROGRAMS_EACH" <<'END' || failed=1
import json, sys
profile, n = json.load(open(sys.argv[1])), int(sys.argv[2])
name = {p["pid"]: p["name"] for p in profile["names"] if p["tid"] == 0}
count, whole, wrong = [0] * 4, [0] * 4, 0
for s in profile["stacks"]:
    copy = name.get(s["pid"], "")
    if not copy.startswith("copy"):
        continue
    quarter = min(3, 4 * int(copy[4:]) // n)
    count[quarter] += s["count"]
    work = [f["object"] for f in s["frames"] if f["name"] == "work"]
    whole[quarter] += s["count"] if work else 0
    wrong += s["count"] * any(object != copy for object in work)
share = [100 * w / max(c, 1) for c, w in zip(count, whole)]
print("images: %s samples, %s %% with work() in each quarter of the programs, %d of another program" %
      (count, [round(x) for x in share], wrong))
if wrong or min(count) < 20 or share[3] < share[0] - 15:
    print("FAIL: later programs are sampled worse")
    sys.exit(1)
END
echo "images: $PROGRAMS_EACH programs, $ROUNDS times: $left kept open; KiB of its own:$rss"
finish
