#!/bin/sh
# SPDX-License-Identifier: MIT
# A target with real-time priority that measures its own pauses, with and without a recording in turn:
# recording must cause none above 1 ms.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need_program latency
rounds=${ROUNDS:-5} seconds=${SECONDS_EACH:-3}
for round in $(seq "$rounds"); do
	start "$work/without.$round" "$PROGRAMS/latency" "$seconds" rt
	wait $! || fail "latency ended with $?"
	record "$work/p" -- "$PROGRAMS/latency" "$seconds" rt
	mv "$work/p.out" "$work/with.$round"
done
check "latency" "$work/p" --min-whole 99 --min-samples 50 --contains 'piece \(latency:1\)=50'
python3 - "$work" "$rounds" <<-'END' || fail "pauses"
	import re, statistics, sys

	def figures(kind):
	    rows = []
	    for i in range(int(sys.argv[2])):
	        head = open("%s/%s.%d" % (sys.argv[1], kind, i + 1)).read()
	        rows.append({k: float(v) for k, v in re.findall(r"(\w+) ([0-9.]+)", head.split("\n")[0])})
	    worst = [max(r["max_late_us"], r["max_work_us"]) for r in rows]
	    return {"over": statistics.median(r["over_1ms"] for r in rows), "worst": max(worst), "median": statistics.median(worst),
	            "p999": statistics.median(max(r["p999_late_us"], r["p999_work_us"]) for r in rows)}

	a, b = figures("without"), figures("with")
	print("latency: longest pause (median of runs) %.0f us without, %.0f us with; worst %.0f, %.0f us; 99.9th percentile "
	      "%.0f, %.0f us; above 1 ms in a run %.0f, %.0f" % (a["median"], b["median"], a["worst"], b["worst"], a["p999"], b["p999"],
	                                            a["over"], b["over"]))
	# The machine makes long pauses of its own, many at a time: only what most runs have, beyond chance, is
	# caused by the recording.
	chance = 3 * (a["over"] + b["over"] + 1) ** 0.5
	sys.exit(0 if b["over"] <= a["over"] + chance and b["p999"] <= max(1000, 1.5 * a["p999"]) else 1)
END
finish
