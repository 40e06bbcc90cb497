#!/bin/sh
# SPDX-License-Identifier: MIT
# Steps of the collector that compiled code starts: [gc] stands on the Lua frames of the trace, and these are all there.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need "$LUAJIT"
record "$work/p" -- "$LUAJIT" "$workloads/collector.lua" "${SECONDS_EACH:-3}" jit
python3 "$here/gc.py" "$work/p" || failed=1
finish
