#!/bin/sh
# SPDX-License-Identifier: MIT
# The ptrace engine beside the BPF engine: the same stacks of a steady workload, as a plain user too, with
# threads and forks; how long its stops are, and what they do to system calls that wait.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need_program field
need "$LUAJIT"
field=$PROGRAMS/field
seconds=${SECONDS_EACH:-3}

start "$work/t" "$LUAJIT" "$workloads/late.lua" 60 nojit
target=$!
wait_for "$work/t" "attach now"
for engine in bpf ptrace; do
	record "$work/$engine" --engine "$engine" -p "$target" -d "${seconds}s" --no-kernel
	check "engine $engine" "$work/$engine" --graph "$workloads/late.graph" --min-whole 99 --min-samples 50
done
stop "$target"
python3 - "$work/bpf" "$work/ptrace" <<-'END' || fail "the engines disagree"
	import collections, json, sys

	def lua(path):
	    """Stacks without native leaves: those differ by where in the VM a thread is stopped."""
	    found = collections.Counter()
	    for s in json.load(open(path))["stacks"]:
	        f = [x["name"] or "?" for x in s["frames"]]
	        last = max((i for i, x in enumerate(s["frames"]) if x["kind"] in ("lua", "jit", "inlined")), default=-1)
	        found[";".join(f[:last + 1])] += s["count"]
	    return found

	a, b = lua(sys.argv[1]), lua(sys.argv[2])
	na, nb = sum(a.values()), sum(b.values())
	common = {s for s in a if s in b}
	only = [(s, n) for s, n in a.items() if s not in b and n > 0.02 * na]
	only += [(s, n) for s, n in b.items() if s not in a and n > 0.02 * nb]
	distance = 50 * sum(abs(a[s] / na - b[s] / nb) for s in set(a) | set(b))
	print("engines: %d and %d stacks of Lua, %d in both; distance %.1f %%" % (len(a), len(b), len(common), distance))
	for s, n in only:
	    print("only one has", n, s)
	sys.exit(1 if only or distance > 15 else 0)
END

# A plain user's own command, with threads and with children.
record "$work/p" --engine ptrace -s -- "$field" children 3 2
grep -q "failed 0" "$work/p.out" || fail "children were disturbed: $(cat "$work/p.out")"
record "$work/p" --engine ptrace -- "$field" spin 4 2
grep -q '"work"' "$work/p" || fail "no work in the profile of threads"

# Stops: those of a second without a recording are the machine's own.
start "$work/pauses0" "$field" pauses 0 "$seconds"
wait $! || fail "pauses ended with $?"
record "$work/p" --engine ptrace -r 99 -- "$field" pauses 0 "$seconds"
echo "engines: gaps of a thread without: $(tail -n 1 "$work/pauses0"); with: $(tail -n 1 "$work/p.out")"
record "$work/p" --engine ptrace -r 99 -- "$field" calls 4 "$seconds"
calls=$(sed -n 's/^calls \([0-9]*\) early \([0-9]*\)$/\2/p' "$work/p.out")
echo "engines: $(tail -n 1 "$work/p.out") (reads and sleeps that ended early)"
[ "$calls" = 0 ] || fail "reads or sleeps ended early: $calls"
finish
