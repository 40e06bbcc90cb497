#!/bin/sh
# SPDX-License-Identifier: MIT
# A program without Lua: status 0, whole native stacks (no frame pointers, alloca, realigned stack, signal
# handler, threads), and one line that there is no LuaJIT.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need_program native
record "$work/p" -- "$PROGRAMS/native" 4
has_line "$work/p.err" "no LuaJIT"
check "native, launched" "$work/p" --graph "$workloads/native.graph" --min-whole 99.5 --max-illegal 0.1 \
	--contains '{start};alpha_call \(native\);beta_call \(native\);gamma_call \(native\);spin=2' \
	--contains '{start};grown_call \(native\);gamma_call \(native\);spin=2' \
	--contains '{start};aligned_call \(native\);gamma_call \(native\);spin=2' \
	--contains 'spin \(native\);[^;]*libc[^;]*;on_signal \(native\);handler_work \(native\);spin=2' \
	--contains '{thread};thread_main \(native\);thread_work \(native\);alpha_call=20'
start "$work/out" "$PROGRAMS/native" 20
target=$!
sleep 0.5
record "$work/q" -p "$target" -d 2s
has_line "$work/q.err" "no LuaJIT"
check "native, attached" "$work/q" --graph "$workloads/native.graph" --min-whole 99.5 --max-illegal 0.1
stop "$target"
finish
