#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: events.sh FILE [PID [SECONDS]]: what the LuaJIT in FILE tells by its probes: VMs that come and go, traces that are made and
# given up, with the reason, phases of the collector. FILE is the program or library that has the LuaJIT, or libmoonspy-vm.so
# beside one that has no probes. Without PID: of all processes. Words for reasons are those of the luajit here, if there is one.
set -eu
file=$1 pid=${2:-} seconds=${3:-0}
only=
[ -z "$pid" ] || only="/pid == $pid/"
script=$(luajit -e 'print("BEGIN {") for i, text in pairs(require("jit.vmdef").traceerr) do
	print(("@reason[%d] = \"%s\";"):format(i, (text:gsub("[\"\\\\]", "")))) end print("} END { clear(@reason); }")' 2>/dev/null) ||
	script='BEGIN { @reason[0] = ""; } END { clear(@reason); }'
none=$script
probe() {
	readelf -n "$file" 2>/dev/null | grep -A1 'Provider: luajit' | grep -qx " *Name: $1" || return 0
	script="$script usdt:$file:luajit:$1 $only { $2 }"
}
probe vm_created 'printf("%d: VM 0x%llx is created\n", pid, arg0);'
probe vm_closed 'printf("%d: VM 0x%llx is closed\n", pid, arg0);'
probe trace_stop 'printf("%d: VM 0x%llx: trace %d, %d bytes at 0x%llx\n", pid, arg0, arg1, arg3, arg2); @made[pid] = count();'
probe trace_abort 'printf("%d: VM 0x%llx: trace %d is given up: reason %d, %s\n", pid, arg0, arg1, arg2, @reason[arg2]); @given_up[pid, arg2] = count();'
probe trace_flush 'printf("%d: VM 0x%llx: trace %d is flushed (0: all)\n", pid, arg0, arg1);'
probe gc_phase 'printf("%d: VM 0x%llx: collector: phase %d, was %d\n", pid, arg0, arg1, arg2); @phases[pid, arg1] = count();'
[ "$script" != "$none" ] || {
	echo "events.sh: $file has no probes of LuaJIT" >&2
	exit 1
}
[ "$seconds" = 0 ] || script="$script interval:s:$seconds { exit(); }"
exec bpftrace ${pid:+-p "$pid"} -e "$script"
