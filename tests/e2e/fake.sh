#!/bin/sh
# SPDX-License-Identifier: MIT
# A process that is full of what looks like LuaJIT and is none, and that lies and changes all the time
# (tests/workloads/fake.c): every verb ends, soon and with a status of its own; the honest VM in it is
# found, proved, and shown as it is; no lie is proved, none is shown as Lua; the target goes on.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need_program fake
library=$(ldconfig -p | sed -n 's/.*libluajit-5\.1\.so\.2 .*=> //p' | head -n 1)
[ -n "$library" ] || skip "no libluajit-5.1.so.2"

# run STATUS OUT VERB ARGS...: STATUS: those that are right, joined by |. A target that has no CPU gives
# no samples (3).
run() {
	run_wanted=$1 run_out=$2 run_status=0
	shift 2
	timeout -k 5 60 "$MOONSPY" "$@" >"$run_out" 2>"$run_out.err" </dev/null || run_status=$?
	case "|$run_wanted|" in
	*"|$run_status|"*) ;;
	*) fail "$1 ended with $run_status, not $run_wanted: $(tail -n 3 "$run_out.err")" ;;
	esac
}

run 6 "$work/file" inspect "$PROGRAMS/fake"
start "$work/t" "$PROGRAMS/fake" 200 "$library"
target=$!
wait_for "$work/t" ready
for round in 1 2; do
	run '0|6' "$work/inspect$round" inspect -j -p "$target"
done
run 0 "$work/record" record -p "$target" -r "$RATE" -d 3s -f json -o "$work/p"
run '0|4' "$work/dump" dump -j -p "$target"
run '0|4' "$work/lines" dump -ll -c -p "$target"
run '0|1|4|6' "$work/traces" traces -p "$target"
run '0|3|4' "$work/ptrace" record -p "$target" --engine ptrace -r 20 -d 2s -f json -o "$work/q"
kill -0 "$target" 2>/dev/null || fail "the target is gone"

python3 - "$work" <<'END' || failed=1
import json, sys
work, wrong = sys.argv[1], []
for n in (1, 2):
    seen = json.load(open("%s/inspect%d" % (work, n)))
    proved = sum(vm["proved"] for vm in seen["vms"])
    # The honest one, and the idle one that the lies were copied from.
    if proved != 2:
        wrong.append("%d of %d VMs proved" % (proved, len(seen["vms"])))
lua = ("honest", "outer", "main chunk", "stop")
honest = whole = lies = 0
for sample in json.load(open(work + "/p"))["stacks"]:
    frames = sample["frames"]
    if any(f["name"] == "main" and f.get("object") == "fake" for f in frames):
        honest += sample["count"]
        whole += sample["count"] * (frames[0]["name"] == "_start" and any(f["name"] in lua and f.get("file") for f in frames))
    elif any(f.get("file") or f["kind"] in ("lua", "jit", "inlined", "fast", "cfunction") for f in frames):
        lies += sample["count"]
print("fake: %d VMs seen, %d proved; %d samples of the honest thread, %d whole; %d others with Lua frames" %
      (len(seen["vms"]), proved, honest, whole, lies))
if not honest or honest - whole > 1 + honest // 100:
    wrong.append("the honest thread is not whole")
if lies:
    wrong.append("lies are shown as Lua")
for text in wrong:
    print("FAIL: " + text)
sys.exit(1 if wrong else 0)
END
finish
