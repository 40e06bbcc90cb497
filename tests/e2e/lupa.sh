#!/bin/sh
# SPDX-License-Identifier: MIT
# Python with an embedded LuaJIT (python3-lupa): Python, C and Lua in one stack.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
# Launched: samples from before the mappings of the new program are known are marked, some 50 of a cold start.
# The distribution's Python: another one does not see the package.
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import lupa' 2>/dev/null || skip "python3-lupa is not installed"
implementation=$("$python" -c 'import lupa; print(lupa.LuaRuntime().lua_implementation)')
case $implementation in
LuaJIT*) ;;
*) skip "this lupa has $implementation inside, not LuaJIT" ;;
esac
record "$work/p" -- "$python" "$workloads/embedded.py" "${SECONDS_EACH:-10}"
check "lupa ($implementation)" "$work/p" --graph "$workloads/embedded.graph" --min-whole 99 --inlined-hidden \
	--contains '(?:outer|anonymous) \(.*;{some};inner \(=20'
finish
