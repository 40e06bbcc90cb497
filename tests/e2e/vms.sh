#!/bin/sh
# SPDX-License-Identifier: MIT
# Several VMs in one process: nested on one stack, in turn, one a thread, handed from thread to thread.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need_program vms
for mode in nested turns threads passed; do
	for jit in nojit jit; do
		graph=vms
		[ "$mode" != nested ] || graph=vms-nested
		record "$work/p" -- "$PROGRAMS/vms" "${SECONDS_EACH:-2}" "$mode" "$jit"
		# shellcheck disable=SC2046
		check "vms $mode $jit" "$work/p" --graph "$workloads/$graph.graph" --min-whole 99.5 $(jit_options "$jit")
	done
done
finish
