#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: agent.sh AGENT OBJECT PROGRAMS: the agent of examples/ sees a Lua and a C program at once, whole;
# then so in a container, where pids are others than the kernel's.
set -eu
agent=$1 object=$2 programs=$3
here=$(cd "$(dirname "$0")" && pwd)
[ "$(id -u)" = 0 ] || { echo "SKIP: not root"; exit 77; }
command -v luajit >/dev/null || { echo "SKIP: no luajit"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/moonspy-agent.XXXXXX")
started=
trap 'kill $started 2>/dev/null || :; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
luajit "$here/../workloads/mixed.lua" 120 jit >"$work/lua" &
started=$!
"$programs/native" 120 >"$work/native" &
started="$started $!"
sleep 0.5
rc=0
timeout 250 "$agent" "$object" 4 >"$work/folded" 2>"$work/err" || rc=$?
if [ "$rc" != 0 ]; then
	cat "$work/err"
	grep -q "Operation not permitted" "$work/err" && { echo "SKIP: BPF is not allowed here"; exit 77; }
	exit 1
fi
python3 - "$work/folded" <<'END'
import re, sys

seen = {"lua": [0, 0], "c": [0, 0]}
for line in open(sys.argv[1], errors="replace"):
    stack, _, count = line.rstrip("\n").rpartition(" ")
    # other programs of these names may run here: they are told apart by what they run
    kind = "lua" if "mixed.lua" in stack else "c" if stack.startswith("native;") else None
    if kind == "lua":
        whole = re.match(r"luajit;_start;__libc_start_main;.*main chunk \(.*mixed.lua:0\);level ", stack)
    elif kind == "c":
        whole = re.match(r"native;(_start;__libc_start_main;|(__)?clone3?;start_thread)", stack)
    if kind:
        seen[kind][0] += int(count)
        seen[kind][1] += int(count) if whole and "[error" not in stack and "[truncated" not in stack else 0
print("agent: %d stacks of Lua, %d whole; %d of C, %d whole" % tuple(seen["lua"] + seen["c"]))
sys.exit(any(total < 10 or whole < 0.95 * total for total, whole in seen.values()))
END
if [ $$ != 1 ] && unshare -mpf --mount-proc true 2>/dev/null; then
	unshare -mpf --mount-proc "$0" "$@"
fi
