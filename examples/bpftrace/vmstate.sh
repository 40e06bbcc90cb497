#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: vmstate.sh PID [SECONDS]: what the first LuaJIT VM of a process is busy with, 99 times a second.
# moonspy says where the VM is and where it keeps its state; bpftrace reads and counts it.
set -eu
pid=$1 seconds=${2:-5}
where=$(moonspy inspect -p "$pid" -j | python3 -c '
import json, sys
found = json.load(sys.stdin)
print(int(found["vms"][0]["g"], 0) + found["layout"]["g_vmstate"])')
exec bpftrace -e '
profile:hz:99 /pid == '"$pid"'/ {
	$state = *(int32 *)uptr('"$where"');
	@[$state >= 0 ? "compiled Lua" : $state == -1 ? "interpreter" : $state == -2 ? "C function" :
		$state == -3 ? "garbage collector" : $state == -4 ? "trace exit" : "JIT compiler"] = count();
}
interval:s:'"$seconds"' { exit(); }'
