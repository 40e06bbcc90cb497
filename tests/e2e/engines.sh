#!/bin/sh
# SPDX-License-Identifier: MIT
# The ptrace engine beside the BPF engine: the same stacks of the same time; with threads and forks; how long
# its stops are, and what they do to system calls that wait.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need_program field native
need "$LUAJIT"
field=$PROGRAMS/field
seconds=${SECONDS_EACH:-3}

# ticks PID: CPU time that it has used
ticks() {
	awk '{ print $14 + $15 }' "/proc/$1/stat"
}

# both NAME GRAPH ILLEGAL COMMAND...: a program seen by both engines, for the same seconds of its steady work.
both() {
	name=$1 graph=$2 illegal=$3
	shift 3
	start "$work/t" "$@"
	target=$!
	sleep 0.5
	for engine in bpf ptrace; do
		"$MOONSPY" record --engine $engine -r 199 -p "$target" -f json -o "$work/$engine" --force \
			--no-kernel --stats >/dev/null 2>"$work/$engine.err" &
		eval "$engine=\$!"
	done
	# Both see the same work: until it has used so much of the CPU, however long that takes.
	sleep 1
	until=$(($(ticks "$target") + seconds * $(getconf CLK_TCK)))
	while [ "$(ticks "$target")" -lt "$until" ]; do
		sleep 0.1
	done
	# shellcheck disable=SC2154
	kill -TERM "$bpf" "$ptrace"
	for pid in $bpf $ptrace; do
		wait "$pid" || fail "$name: one of the engines ended with $?: $(cat "$work/bpf.err" "$work/ptrace.err")"
	done
	stop "$target"
	# Where the machine is busy a stop stands for several samples, one for more than another: chance
	# does then what it does to half as many equal ones.
	stops=$(sed -n 's/^ *\([0-9,]*\)  stops of a thread$/\1/p' "$work/ptrace.err" | tr -d ,)
	for engine in bpf ptrace; do
		draws=$((${stops:-0} / 2))
		[ $engine = ptrace ] || draws=0
		# shellcheck disable=SC2046
		check "$name by $engine" "$work/$engine" --graph "$workloads/$graph.graph" --min-whole 98 \
			--max-illegal "$illegal" --draws "$draws" $(jit_options jit)
	done
	python3 "$here/agree.py" "$name" "$work/bpf" "$work/ptrace" "${stops:-0}" || fail "$name: the engines disagree"
}
both "truth nojit" truth 0 "$LUAJIT" "$workloads/truth.lua" 60 nojit
both "truth jit" truth 0 "$LUAJIT" "$workloads/truth.lua" 60 jit
both "coroutines" coroutines 0.1 "$LUAJIT" "$workloads/coroutines.lua" 60 jit
both "ffi" ffi 0.1 "$LUAJIT" "$workloads/ffi.lua" 60 jit
both "native" native 0.1 "$PROGRAMS/native" 200
[ ! -x "$PROGRAMS/vms" ] || both "threads" vms 0 "$PROGRAMS/vms" 60 threads jit

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
