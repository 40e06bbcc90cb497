#!/bin/sh
# SPDX-License-Identifier: MIT
# Core files of crashes: in the VM's own code, in a trace, in C called from either, in the collector,
# in callbacks, with several VMs and threads, with stacks that were written over; cut off, compressed,
# without their files. What each must show stands in core_crash.py.
set -eu
. "$(dirname "$0")/lib.sh"
need python3
need_program crash
. "$here/core_lib.sh"

cp "$PROGRAMS/crash" "$work/crash"
program=$work/crash
for mode in nojit jit; do
	for where in vm trace helper gc ffi callback cfunction coroutine nested threads gcstep deep null smash_c smash_lua; do
		crash "$work/core" "$program" "$workloads/cores/crash.lua" $where $mode
		look $where-$mode "$work/core"
	done
done

# A handler of the program's own that aborts: the stack goes on below it where the signal hit.
for where in vm trace; do
	crash "$work/core" env CRASH_HANDLER=1 "$program" "$workloads/cores/crash.lua" $where jit
	look handler-$where-jit "$work/core"
done

crash "$work/core" "$program" "$workloads/cores/crash.lua" vm nojit
# All pages dumped: the files are not needed, only their symbols are missing.
crash "$work/full" sh -c 'echo 0x37 >/proc/$$/coredump_filter; exec "$@"' sh "$program" "$workloads/cores/crash.lua" vm nojit
look vm-nojit "$work/full"
mv "$program" "$work/elsewhere"
look vm-nojit "$work/core" --exe "$work/elsewhere"
look no-exe "$work/core" --sysroot "$work/none"
look full-no-exe "$work/full"
look no-exe "$work/core"
mkdir "$work/root"
cp "$work/elsewhere" "$work/root/crash"
look vm-nojit "$work/core" --sysroot "$work/root"
id=$(readelf -n "$work/elsewhere" | sed -n 's/.*Build ID: //p')
mkdir -p "$work/ids/usr/lib/debug/.build-id/$(printf %.2s "$id")"
cp "$work/elsewhere" "$work/ids/usr/lib/debug/.build-id/$(printf %.2s "$id")/${id#??}"
look vm-nojit "$work/core" --sysroot "$work/ids"
python3 "$here/core_edit.py" rename "$work/core" "$work/renamed" libluajit-5.1.so.2 libluajiX-5.1.so.2
look no-luajit "$work/renamed" --exe "$work/elsewhere"
cp /bin/true "$program"
look other-exe "$work/core"
look other-exe "$work/core" --exe /bin/true
finish
