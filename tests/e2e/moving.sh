#!/bin/sh
# SPDX-License-Identifier: MIT
# Lua stacks that are being moved, sampled in the kernel too: a page that is touched first, another program's turn.
# Kernel frames come first in a stack, and the registers that tell where the Lua stack is are of those behind them.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need "$LUAJIT" taskset
RATE=9999
cpu=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
# Wakes up all the time, and takes the target's turn.
start "$work/busy" taskset -c "$cpu" python3 -c "
import time
while True: time.sleep(0.0001)"
busy=$!
record "$work/p" -- taskset -c "$cpu" "$LUAJIT" "$workloads/growth.lua" "${SECONDS_EACH:-3}" nojit
stop "$busy"
# While the kernel itself moves its pages (mremap) no register tells yet: those are left out.
python3 - "$work/p" <<-'END' || fail "stacks being moved are not whole"
	import json, sys
	profile = json.load(open(sys.argv[1]))
	interrupted = 0
	for stack in profile["stacks"]:
	    names = [frame["name"] or "" for frame in stack["frames"]]
	    if names[0] == "Lua stack being moved" and any(name.startswith("irqentry") for name in names):
	        interrupted += stack["count"]
	moved = profile["quality"]["ways"].get("Lua stack being moved: by registers", 0)
	print("moving: %d samples, %d of a stack being moved, %d interrupted and not whole"
	      % (profile["quality"]["samples"], moved, interrupted))
	sys.exit(0 if moved > 20 and not interrupted else 1)
END
finish
