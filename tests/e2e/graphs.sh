#!/bin/sh
# SPDX-License-Identifier: MIT
# Are the call graphs right? Needs no moonspy: each is read for mistakes, and held against a profile made by a
# debug hook, where a hook can see all of it.
set -eu
. "$(dirname "$0")/lib.sh"
need "$LUAJIT" python3
for graph in "$workloads"/*.graph; do
	case $graph in
	*/luajit.graph) continue ;; # only included by others
	esac
	python3 "$here/check.py" --lint --graph "$graph" >"$work/lint" || fail "$(cat "$work/lint")"
done
cd "$workloads"
for name in truth helpers boundaries coroutines tailcalls varargs metamethods traces loads collector fastfuncs \
	errors mixed callnames; do
	timeout 60 "$LUAJIT" "$here/hookprofile.lua" "$work/p" 97 "$name.lua" 0.4 nojit >"$work/out" 2>&1 ||
		fail "$name: $(cat "$work/out")"
	# Shares are of instructions here, not of time.
	sed '/^min /d; /^own /d' "$name.graph" >"$work/graph"
	sed '/^own /d' luajit.graph >"$work/luajit.graph"
	for source in "$name.lua" drive.lua; do
		cp "$source" "$work/"
	done
	mv "$work/graph" "$work/$name.graph"
	check "$name by a hook" "$work/p" --graph "$work/$name.graph" --lua-only
done
finish
