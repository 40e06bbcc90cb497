#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs of the core fuzzer: core files as inputs, then real VMs with lies in their memory, one that
# waits in Lua and one that runs compiled code.
# usage: core_fuzz.sh BUILD-FOLDER CLANG FILE_RUNS LIE_RUNS; builds the fuzzer first
# Environment: LUAJIT (luajit), SEED (1), CORPUS (folder to keep inputs in), MAX_LEN (50000: of a core file),
# BULK (see core.mk). Ten millions of each: BULK=1 MAX_LEN=4000 CORPUS=DIR core_fuzz.sh DIR clang-14 10000000 10000000
set -eu
fuzzer=$1/core-fuzz clang=$2 file_runs=$3 lie_runs=$4
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
: "${LUAJIT:=luajit}" "${SEED:=1}" "${MAX_LEN:=50000}"
started=
trap 'for pid in $started; do kill -9 "$pid" 2>/dev/null || :; done; rm -rf "$dir"' EXIT
mkdir "$dir/files" "$dir/lies"
if ! command -v gcore >/dev/null || ! command -v "$LUAJIT" >/dev/null; then
	echo "SKIP: gcore and $LUAJIT are needed"
	exit 77
fi
mkdir -p "$1"
make -s -j2 -C "$1" -f "$here/core.mk" ROOT="$(cd "$here/../.." && pwd)" CLANG="$clang"

cat >"$dir/vm.lua" <<'END'
local ffi = require("ffi")
local function tell() io.write("ready\n") io.flush() end
local function inner(n, ...) local t = { n, name = "x", { ... } } tell() io.read("*a") return t and "y" end
local function hot(t) local sum = 0 tell() for i = 1, 1e15 do sum = sum + #t.name + i % 7 end return sum end
local waiting = {}
for i = 1, 5 do
  waiting[i] = coroutine.create(function(a) local b = coroutine.yield(a) return b end)
  coroutine.resume(waiting[i], i)
end
if arg[1] == "jit" then hot({ name = "x" }) end
local c = ffi.new("struct { int x; const char *p; }")
local r = coroutine.wrap(function(...)
  return (string.gsub("x", "x", function() return inner(1.5, "vararg", c, waiting) end))
end)(1, 2)
print(r, c, waiting)
END

# The cores of a LuaJIT that waits in the middle of Lua, and of one that runs.
mkfifo "$dir/in"
for name in vm jit; do
	"$LUAJIT" "$dir/vm.lua" $name <"$dir/in" >"$dir/$name.out" &
	pid=$!
	started="$started $pid"
	exec 9>"$dir/in"
	for _ in $(seq 200); do
		grep -q ready "$dir/$name.out" && break
		sleep 0.05
	done
	gcore -o "$dir/core" "$pid" >/dev/null 2>&1
	mv "$dir/core.$pid" "$dir/$name.core"
	exec 9>&-
	kill "$pid"
done
python3 "$here/core_seeds.py" "$dir/vm.core" "$dir/files"
if command -v zstd >/dev/null; then zstd -q "$dir/files/tiny" -o "$dir/files/zstd"; fi
if command -v xz >/dev/null; then xz -k -c "$dir/files/tiny" >"$dir/files/xz"; fi
if command -v lz4 >/dev/null; then lz4 -q "$dir/files/tiny" "$dir/files/lz4"; fi
cp "$here"/inputs/core/* "$dir/files" 2>/dev/null || : # once a fault each
head -c 2000 /dev/urandom >"$dir/lies/random"
: >"$dir/lies/none"

run() { # FOLDER RUNS MAX_LEN
	"$fuzzer" -seed="$SEED" -runs="$2" -max_len="$3" -timeout=20 -rss_limit_mb=2000 -malloc_limit_mb=1100 \
		-print_final_stats=1 -verbosity=0 -entropic=0 -artifact_prefix="$dir/" ${CORPUS:+"$CORPUS/$1"} "$dir/$1" || {
		status=$?
		cp "$dir/vm.core" ./core_fuzz.vm
		cp "$dir/jit.core" ./core_fuzz.jit
		for file in "$dir"/crash-* "$dir"/timeout-* "$dir"/oom-* "$dir"/leak-*; do
			[ -f "$file" ] && cp "$file" . && echo "kept: $(pwd)/$(basename "$file"), core_fuzz.vm, core_fuzz.jit"
		done
		exit $status
	}
}
# Memory that was freed is used again: new pages for each input take most of the time.
ASAN_OPTIONS=quarantine_size_mb=4${ASAN_OPTIONS:+:$ASAN_OPTIONS}
export ASAN_OPTIONS
[ -z "${CORPUS-}" ] || mkdir -p "$CORPUS/files" "$CORPUS/lies"
run files "$file_runs" "$MAX_LEN"
for name in vm jit; do
	MOONSPY_FUZZ_CORE=$dir/$name.core
	export MOONSPY_FUZZ_CORE
	run lies "$lie_runs" 704
done
