-- SPDX-License-Identifier: MIT
-- Run by crash.c: crash.lua WHERE jit|nojit. Ends with SIGSEGV, in a place that WHERE names.
local where, mode = ...
local ffi = require("ffi")
local crash, jit = crash, require("jit")
if mode == "nojit" then jit.off() else require("jit.opt").start("hotloop=3") end
ffi.cdef [[
unsigned long strlen(const char *s);
int abs(int n);
unsigned usleep(unsigned us);
void qsort(void *base, size_t n, size_t size, int (*compare)(const void *a, const void *b));
]]
local C = ffi.C

-- Where a table is, and two of its fields (GCtab with GC64).
local ARRAY, METATABLE = 16, 32
local function address(object) return tonumber(string.format("%p", object)) end

local pointers, lengths = {}, {}
for i = 1, 300 do
  pointers[i] = ffi.cast("int *", ffi.new("int[64]", i))
  lengths[i] = 100
end
pointers[251] = ffi.cast("int *", 16)
local buffer = ffi.new("char[128]")

local places = {}
function places.vm()
  local victim = { 1, 2, 3 }
  crash.poke(address(victim) + ARRAY, 16)
  return victim[2]
end
function places.trace()
  local sum = 0
  for i = 1, 300 do sum = sum + pointers[i][0] end
  return sum
end
function places.helper()
  for i = 1, 300 do ffi.copy(buffer, pointers[i], lengths[i]) end
end
function places.gc()
  local victim = { 1, 2, 3 }
  crash.poke(address(victim) + METATABLE, 16)
  collectgarbage()
  return victim
end
function places.gcstep()
  local victim, kept = { 1, 2, 3 }, {}
  collectgarbage()
  crash.poke(address(victim) + METATABLE, 16)
  for i = 1, 1e7 do kept[i % 1000] = { i } end
  return victim
end
function places.deep() crash.deep() end
function places.null()
  local sum, calls = 0, ffi.new("struct { int (*call)(int); }[301]")
  for i = 1, 250 do calls[i].call = C.abs end
  for i = 1, 300 do sum = sum + calls[i].call(i) end
  return sum
end
function places.ffi()
  return C.strlen(ffi.cast("const char *", 16))
end
function places.callback()
  local function compare() crash.abort() return 0 end
  C.qsort(buffer, 2, 4, ffi.cast("int (*)(const void *, const void *)", compare))
end
function places.cfunction() crash.abort() end
function places.smash_c() crash.smash_c() end
function places.smash_lua() crash.smash_lua() end
function places.nested() crash.nested("cfunction") end
function places.coroutine()
  local function inside(n) if n == 0 then crash.abort() end inside(n - 1) return n end
  coroutine.wrap(inside)(3)
end
function places.sleep() while true do C.usleep(1000) end end
places.threads = places.cfunction

-- Coroutines that nobody runs.
local waiting = {}
local function wait_for(what) return coroutine.yield(what) end
for i = 1, 3 do
  waiting[i] = coroutine.create(function(name) local got = wait_for(name) return got end)
  coroutine.resume(waiting[i], "job " .. i)
end
local function middle(place) local result = places[place]() return result end
local function outer(place) local result = middle(place) return result end
outer(where)
