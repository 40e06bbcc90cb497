#!/bin/sh
# SPDX-License-Identifier: MIT
# asan.sh BUILD: the module with address and undefined behaviour sanitizers, in programs that embed LuaJIT, and in luajit, which
# has none itself and is started with theirs. What luajit keeps where it maps its own memory would be called leaked.
set -eu
build=$1
here=$(dirname "$0")
modules=$build/src/inprocess
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for case in api close exec exit fork full loop owner threads vms; do
	said=$("$here/run.sh" "$modules" "$build/tests/inprocess/embed-sysprof" "$case" 2>&1) || {
		echo "$case: FAIL: $said"
		exit 1
	}
	echo "$case: $said"
done
printf '#!/bin/sh\nLD_PRELOAD="%s %s" exec luajit "$@"\n' "$(gcc -print-file-name=libasan.so)" "$(gcc -print-file-name=libubsan.so)" \
	>"$work/luajit"
chmod +x "$work/luajit"
"$here/run.sh" "$modules" "$work/luajit" "$here/errors.lua"
"$here/collected.py" "$build/src/cli/moonspy" "$modules" "$work/luajit"
"$here/workloads.py" "$build/src/cli/moonspy" "$modules" --luajit "$work/luajit" --seconds 1 \
	mixed:nojit mixed:jit coroutines:jit errors:nojit ffi:jit finalizers:nojit helpers:jit metamethods:nojit traces:jit
