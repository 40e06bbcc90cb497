#!/bin/sh
# SPDX-License-Identifier: MIT
# A LuaJIT loaded while recording, from a copy under a random name that is deleted at once.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need_program library
library=$(ldconfig -p | sed -n 's/.*libluajit-5\.1\.so\.2 .*=> //p' | head -n 1)
[ -n "$library" ] || skip "no libluajit-5.1.so.2"
record "$work/p" -- "$PROGRAMS/library" 6 "$library"
# Some samples pass before a library just loaded is known.
check "late library" "$work/p" --graph "$workloads/library.graph" --min-whole 95 --inlined-hidden
finish
