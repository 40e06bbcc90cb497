#!/bin/sh
# SPDX-License-Identifier: MIT
# A process that forks 1000 times, with and without -s; one that becomes another program; COMMAND under a shell.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need_program processes
need "$LUAJIT"
# Many that are gone before anything can be read of them: nobody may be disturbed.
count=${FORKS:-1000}
for follow in "" -s; do
	# shellcheck disable=SC2086
	record_within 120 "$work/p" $follow -- "$PROGRAMS/processes" fork "$count" 1 || [ $? = 3 ] || fail "status $?"
	grep -q "forks $count failed 0" "$work/p.out" || fail "the target's forks were disturbed: $(cat "$work/p.out")"
	echo "processes: $count forks${follow:+, followed}: $(tail -n 1 "$work/p.err")"
done

record "$work/p" -s -- "$PROGRAMS/processes" fork 100 30
# Each child lives 30 ms: its first sample may come before its mappings are known.
check "children followed" "$work/p" --graph "$workloads/processes.graph" --min-whole 95 --inlined-hidden \
	--min-samples 1000
python3 - "$work/p" 100 <<-'END' || fail "too few of the children were seen"
	import json, sys
	profile = json.load(open(sys.argv[1]))
	lua = {s["pid"] for s in profile["stacks"] if any(f["name"] == "bottom" for f in s["frames"])}
	print("processes: Lua seen in %d of %s children" % (len(lua), sys.argv[2]))
	sys.exit(0 if len(lua) > 0.9 * int(sys.argv[2]) else 1)
END

record "$work/q" -- "$PROGRAMS/processes" exec 1 "$LUAJIT" "$workloads/truth.lua" 3
check "exec" "$work/q" --inlined-hidden --min-whole 99 --contains '{start};native_work=10' \
	--contains 'main chunk \([^;]*truth.lua:0\);drive \([^;]*drive.lua:[0-9]+\);w_=50'

record "$work/r" -s -- sh -c "'$LUAJIT' '$workloads/truth.lua' 2 & '$LUAJIT' '$workloads/helpers.lua' 2; wait"
check "two children of a shell" "$work/r" --inlined-hidden --min-whole 99 \
	--contains 'main chunk \([^;]*truth.lua:0\)=30' --contains 'main chunk \([^;]*helpers.lua:0\)=30'
finish
