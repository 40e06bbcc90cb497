#!/bin/sh
# SPDX-License-Identifier: MIT
# Programs that start threads and processes all the time, which end at once: the one that starts them has the samples
# of its CPU time, and its stacks are whole in the system calls that do it (clone() has no CFI there).
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need_program starts
for way in threads vfork spawn fork; do
	for engine in launch attach; do
		if [ "$engine" = launch ]; then
			record "$work/p" -- "$PROGRAMS/starts" "$way" 1
			output=$work/p.out
		else
			output=$work/p.out
			start "$output" "$PROGRAMS/starts" "$way" 1
			record "$work/p" -p "$!" -d 60s
			wait "$!" || fail "$way ended with $?"
		fi
		python3 "$here/starters.py" "$way $engine" "$work/p" "$output" "$RATE" || fail "$way $engine"
	done
done
finish
