-- SPDX-License-Identifier: MIT
-- usage: luajit ffi.lua SECONDS [jit|nojit]
-- FFI: callbacks from qsort (plain, after a coroutine ran, in a coroutine, nested, from
-- a finalizer), functions that return structs, that take many arguments, callbacks that fail.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local ffi = require "ffi"
ffi.cdef [[
typedef int (*compare_function)(const int *, const int *);
void qsort(void *base, size_t count, size_t size, compare_function compare);
typedef struct { int quot, rem; } div_t;
typedef struct { long quot, rem; } ldiv_t;
div_t div(int, int);
ldiv_t ldiv(long, long);
int snprintf(char *, size_t, const char *, ...);
int abs(int);
double fmod(double, double);
]]
local C = ffi.C
local size = 64
local data = ffi.new("int[?]", size)

local function weight(v)
  local x = v
  for i = 1, 12 do x = (x * 31 + i) % 65521 end
  return x
end
local function compare(a, b)
  local x, y = weight(a[0]), weight(b[0])
  return x < y and -1 or (x > y and 1 or 0)
end
local compare_callback = ffi.cast("compare_function", compare)

local function fill()
  for i = 0, size - 1 do data[i] = (i * 7919) % 997 end
end
local function sorted()
  fill()
  C.qsort(data, size, 4, compare_callback)
end
local function w_qsort(n)
  for _ = 1, n do sorted() end
end

local function generator()
  for i = 1, 3 do
    weight(i)
    coroutine.yield(i)
  end
end
local function w_after_coroutine(n)
  for _ = 1, n do
    local step = coroutine.wrap(generator)
    step()
    sorted()
    step()
  end
end

local function sorting_body()
  sorted()
  coroutine.yield(1)
  sorted()
end
local function w_in_coroutine(n)
  for _ = 1, n do
    local step = coroutine.wrap(sorting_body)
    step()
    step()
  end
end

-- A comparator that itself sorts through another callback.
local small = ffi.new("int[4]")
local depth = 0
local function outer_compare(a, b)
  if depth == 0 then
    depth = 1
    for i = 0, 3 do small[i] = 4 - i end
    C.qsort(small, 4, 4, compare_callback)
    depth = 0
  end
  return a[0] - b[0]
end
local outer_callback = ffi.cast("compare_function", outer_compare)
local few = ffi.new("int[8]")
local function w_nested(n)
  for _ = 1, n do
    for i = 0, 7 do few[i] = 8 - i end
    C.qsort(few, 8, 4, outer_callback)
  end
end

-- From a finalizer: only the collector runs it, from any instruction that allocates.
local function finalize() sorted() end
local box = ffi.typeof("struct { int v; }")
local function allocate(i)
  local cell = box(i)
  if i % 50 == 0 then ffi.gc(cell, finalize) end
  return cell.v
end
local function w_finalizer(n)
  local x = 0
  for i = 1, n do x = x + allocate(i) end
  return x
end

local text = ffi.new("char[256]")
local function divide(i)
  local d, l = C.div(i, 7), C.ldiv(i, 13)
  return d.quot + d.rem + tonumber(l.quot)
end
local function w_structs(n)
  local x = 0
  for i = 1, n do x = x + divide(i) end
  return x
end
local function write_text(i)
  return C.snprintf(text, 256, "%d %d %d %d %d %g %g %s", ffi.cast("int", i), ffi.cast("int", 2),
    ffi.cast("int", 3), ffi.cast("int", 4), ffi.cast("int", 5), 1.5, 2.5, "end")
end
local function w_arguments(n)
  local x = 0
  for i = 1, n do
    local k = write_text(i)
    x = x + k + C.abs(-i) + C.fmod(i, 7)
  end
  return x
end

-- An error in a callback unwinds through the C function.
local function failing_compare()
  weight(7)
  error("stop", 0)
end
local failing_callback = ffi.cast("compare_function", failing_compare)
local function sort_with_error()
  C.qsort(few, 8, 4, failing_callback)
end
local function w_error(n)
  for _ = 1, n do
    local ok = pcall(sort_with_error)
    if ok then error("no error") end
  end
end

-- A compiled call into C must not call back.
if jit then
  for _, f in ipairs({ sorted, w_nested, outer_compare, sort_with_error }) do jit.off(f) end
end

drive({
  { "w_qsort", w_qsort }, { "w_after_coroutine", w_after_coroutine }, { "w_in_coroutine", w_in_coroutine },
  { "w_nested", w_nested }, { "w_finalizer", w_finalizer }, { "w_structs", w_structs },
  { "w_arguments", w_arguments }, { "w_error", w_error },
}, seconds)
