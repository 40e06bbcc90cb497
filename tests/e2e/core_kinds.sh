#!/bin/sh
# SPDX-License-Identifier: MIT
# Core files of all kinds, of one crash: the kernel's with other filters, gcore's, compressed as
# systemd-coredump keeps them, qemu's, without the list of mapped files, cut off, of another machine.
set -eu
. "$(dirname "$0")/lib.sh"
need python3
need_program crash
. "$here/core_lib.sh"

program=$PROGRAMS/crash lua=$workloads/cores/crash.lua
crash "$work/core" "$program" "$lua" vm nojit
look vm-nojit "$work/core"

# ---- Filters: private anonymous memory alone; everything; and none, which has no memory at all ----

for filter in 0x1 0x11 0x33 0x37 0x7f; do
	crash "$work/filter" sh -c 'echo $0 >/proc/$$/coredump_filter; exec "$@"' $filter "$program" "$lua" vm nojit
	look vm-nojit "$work/filter"
done
crash "$work/filter" sh -c 'echo 0 >/proc/$$/coredump_filter; exec "$@"' sh "$program" "$lua" vm nojit
status=0
"$MOONSPY" core -q "$work/filter" >"$work/text" 2>"$work/err" || status=$?
[ $status = 4 ] || fail "without memory the exit status is $status, not 4"
grep -q 'error: ' "$work/text" || fail "without memory no stack has an error"

# ---- Compressed, as a file whose name does not tell ----

for how in zstd xz lz4; do
	if ! command -v $how >/dev/null; then
		echo "no $how here: not tried"
		continue
	fi
	case $how in
	lz4) $how -q -c -B4 "$work/core" >"$work/compressed" ;; # in pieces of 64 KiB; by itself it is one
	*) $how -q -c "$work/core" >"$work/compressed" ;;
	esac
	look vm-nojit "$work/compressed"
	head -c 2000 "$work/compressed" >"$work/cut"
	"$MOONSPY" core -q "$work/cut" >/dev/null 2>"$work/err" && fail "2000 bytes of a core in $how are no failure"
	size=$(stat -c %s "$work/compressed")
	head -c $((size * 9 / 10)) "$work/compressed" >"$work/cut"
	look cut "$work/cut"
done

# ---- Gigabytes: in bounded memory, and what is not there is not read ----

crash "$work/big" env CRASH_GIB=1 "$program" "$lua" vm nojit
for how in none zstd lz4; do
	case $how in
	none) cp --sparse=always "$work/big" "$work/compressed" ;;
	*) command -v $how >/dev/null || continue
		$how -q -c "$work/big" >"$work/compressed" ;;
	esac
	look vm-nojit "$work/compressed"
	python3 "$here/core_big.py" "$MOONSPY" "$work/compressed" || failed=1
done
rm -f "$work/big"

# ---- qemu's user mode: no list of files, no siginfo ----

if command -v qemu-x86_64 >/dev/null; then
	for what in vm-nojit trace-jit helper-jit coroutine-jit cfunction-nojit nested-jit threads-jit; do
		rm -rf "$work/cwd"
		mkdir "$work/cwd"
		(cd "$work/cwd" && qemu-x86_64 "$program" "$lua" ${what%-*} ${what#*-} >/dev/null 2>&1) || :
		set -- "$work"/cwd/qemu_*.core
		[ -f "$1" ] || fail "qemu wrote no core"
		look qemu:$what "$1"
	done
else
	echo "no qemu-x86_64 here: not tried"
fi

# The same of a core by the kernel whose list is not to be read.
crash "$work/full" sh -c 'echo 0x37 >/proc/$$/coredump_filter; exec "$@"' sh "$program" "$lua" vm nojit
for core in core full; do
	python3 "$here/core_edit.py" no-list "$work/$core" "$work/edited"
	look vm-nojit "$work/edited"
done

# ---- Cut off, of arm64, of 32 bits, something else ----

python3 "$here/core_cut.py" "$MOONSPY" "$work/core" || failed=1
python3 "$here/core_edit.py" arm64 "$work/core" "$work/edited"
status=0
"$MOONSPY" core "$work/edited" >"$work/text" 2>"$work/err" || status=$?
[ $status = 4 ] || fail "a core that says arm64, with other registers: exit status $status, not 4"
grep -q '^Thread .*not readable (not supported)' "$work/text" || fail "registers of another machine are read"
python3 "$here/core_edit.py" narrow "$work/core" "$work/edited"
"$MOONSPY" core "$work/edited" >/dev/null 2>"$work/err" && fail "a core of 32 bits is no failure"
has_line "$work/err" "it is the core of a 32-bit program"
"$MOONSPY" core "$program" >/dev/null 2>"$work/err" && fail "a program is no failure"
has_line "$work/err" "it is an ELF file, but no core"
finish
