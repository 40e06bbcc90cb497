#!/bin/sh
# SPDX-License-Identifier: MIT
# Code in a file that cannot be opened, called from LuaJIT: the stack ends there with a mark that says so. The
# VM's registers are as in compiled code all the time: it is not taken for that.
set -eu
. "$(dirname "$0")/lib.sh"
need_record
need "$LUAJIT" setpriv
plain="setpriv --reuid=65534 --regid=65534 --clear-groups"
$plain "$MOONSPY" --version >/dev/null 2>&1 || skip "no plain user can run $MOONSPY"
library=$(ldconfig -p | sed -n 's/.*libz\.so\.1 .*x86-64.*=> //p' | head -n 1)
[ -n "$library" ] || skip "no libz.so.1"
chmod 711 "$work"
mkdir -m 777 "$work/plain"
cp "$(readlink -f "$library")" "$work/plain/lib.so"
chmod 755 "$work/plain/lib.so"
cat >"$work/plain/sum.lua" <<'END'
local ffi = require("ffi")
ffi.cdef("unsigned long adler32(unsigned long, const char *, unsigned);")
local lib, text = ffi.load(arg[1]), ("x"):rep(1000000)
local stop = os.time() + 60
while os.time() < stop do lib.adler32(1, text, #text) end
END

start "$work/out" $plain "$LUAJIT" "$work/plain/sum.lua" "$work/plain/lib.so"
target=$!
for _ in $(seq 100); do
	grep -q "plain/lib.so" "/proc/$target/maps" && break
	sleep 0.1
done

# record_plain NAME OPTIONS...: with rights to sample, and not to open every file.
record_plain() {
	caps="+bpf,+perfmon,+sys_ptrace" out=$work/plain/$1.folded
	shift
	$plain --inh-caps=$caps --ambient-caps=$caps timeout 60 "$MOONSPY" record -q -r 499 --no-kernel \
		-p "$target" -d 1s -o "$out" "$@" || fail "record ended with $?: $*"
}

# share NAME PATTERN: how many of a hundred samples have it.
share() {
	awk -v pattern="$2" '{ all += $NF } $0 ~ pattern { some += $NF } END { print all ? int(100 * some / all) : -1 }' \
		"$work/plain/$1.folded"
}

for engine in bpf ptrace; do
	record_plain "$engine-before" --engine $engine
	[ "$(share $engine-before 'adler32.* [(]lib[.]so[)]|lib[.]so[+]')" -ge 80 ] ||
		fail "$engine: the library is not seen: $(cat "$work/plain/$engine-before.folded")"
done
chmod 000 "$work/plain/lib.so"
for engine in bpf ptrace; do
	record_plain "$engine" --engine $engine
	[ "$(share $engine '^\[error: mapped file could not be read\]')" -ge 80 ] ||
		fail "$engine: no mark: $(cat "$work/plain/$engine.folded")"
	echo "unreadable: $engine: $(share $engine-before lib.so) % in the library, $(share $engine 'could not be read') % marked"
done
stop "$target"
finish
