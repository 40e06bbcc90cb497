#!/bin/sh
# SPDX-License-Identifier: MIT
# Short runs of the core fuzzer: core files as inputs, then a real VM with lies in its memory.
# usage: core_fuzz.sh BUILD-FOLDER CLANG FILE_RUNS LIE_RUNS; builds the fuzzer first
# Environment: LUAJIT (luajit), SEED (1), CORPUS (folder to keep inputs in)
set -eu
fuzzer=$1/core-fuzz clang=$2 file_runs=$3 lie_runs=$4
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
: "${LUAJIT:=luajit}" "${SEED:=1}"
mkdir "$dir/files" "$dir/lies"
if ! command -v gcore >/dev/null || ! command -v "$LUAJIT" >/dev/null; then
	echo "SKIP: gcore and $LUAJIT are needed"
	exit 77
fi
mkdir -p "$1"
make -s -j2 -C "$1" -f "$here/core.mk" ROOT="$(cd "$here/../.." && pwd)" CLANG="$clang"

cat >"$dir/vm.lua" <<'END'
local ffi = require("ffi")
local function inner(n, ...) local t = { n, name = "x", { ... } } print("waiting") io.stdout:flush() io.read() return t end
local waiting = {}
for i = 1, 5 do
  waiting[i] = coroutine.create(function(a) local b = coroutine.yield(a) return b end)
  coroutine.resume(waiting[i], i)
end
local c = ffi.new("struct { int x; const char *p; }")
local r = coroutine.wrap(function(...)
  return (string.gsub("x", "x", function() return inner(1.5, "vararg", c, waiting) end))
end)(1, 2)
print(r, c, waiting)
END

# The core of a LuaJIT that waits in the middle of Lua.
mkfifo "$dir/in"
"$LUAJIT" "$dir/vm.lua" <"$dir/in" >"$dir/out" &
pid=$!
exec 9>"$dir/in"
for _ in $(seq 200); do
	grep -q waiting "$dir/out" && break
	sleep 0.05
done
gcore -o "$dir/core" "$pid" >/dev/null 2>&1
mv "$dir/core.$pid" "$dir/vm.core"
exec 9>&-
wait "$pid" || :
python3 - "$dir/vm.core" "$dir/files" <<'END'
"""A core of what the reader looks at first: headers, notes, and the first page of each mapping."""
import struct
import sys

with open(sys.argv[1], "rb") as f:
    core = f.read().replace(b"/usr/", b"/nil/")  # the files of this machine are not meant
phoff, phnum = struct.unpack_from("<Q", core, 32)[0], struct.unpack_from("<H", core, 56)[0]
for name, keep in (("small", 512), ("page", 4096)):
    headers, body = [], b""
    start = 64 + 56 * phnum
    for i in range(phnum):
        kind, flags, offset, addr, phys, filled, size, align = struct.unpack_from("<IIQQQQQQ", core, phoff + 56 * i)
        filled = filled if kind == 4 else min(filled, keep)
        headers.append(struct.pack("<IIQQQQQQ", kind, flags, start + len(body), addr, phys, filled, size, align))
        body += core[offset:offset + filled]
    head = core[:32] + struct.pack("<QQ", 64, 0) + core[48:64]
    with open(f"{sys.argv[2]}/{name}", "wb") as f:
        f.write(head + b"".join(headers) + body)
END
if command -v zstd >/dev/null; then zstd -q "$dir/files/small" -o "$dir/files/zstd"; fi
if command -v xz >/dev/null; then xz -k -c "$dir/files/small" >"$dir/files/xz"; fi
if command -v lz4 >/dev/null; then lz4 -q "$dir/files/small" "$dir/files/lz4"; fi
head -c 2000 /dev/urandom >"$dir/lies/random"
: >"$dir/lies/none"

run() { # FOLDER RUNS MAX_LEN
	"$fuzzer" -seed="$SEED" -runs="$2" -max_len="$3" -timeout=20 -rss_limit_mb=2000 -malloc_limit_mb=1100 \
		-print_final_stats=1 -verbosity=0 -artifact_prefix="$dir/" ${CORPUS:+"$CORPUS/$1"} "$dir/$1" || {
		status=$?
		cp "$dir/vm.core" ./core_fuzz.vm
		for file in "$dir"/crash-* "$dir"/timeout-* "$dir"/oom-* "$dir"/leak-*; do
			[ -f "$file" ] && cp "$file" . && echo "kept: $(pwd)/$(basename "$file"), core_fuzz.vm"
		done
		exit $status
	}
}
[ -z "${CORPUS-}" ] || mkdir -p "$CORPUS/files" "$CORPUS/lies"
run files "$file_runs" 50000
MOONSPY_FUZZ_CORE=$dir/vm.core
export MOONSPY_FUZZ_CORE
run lies "$lie_runs" 704
