-- SPDX-License-Identifier: MIT
-- usage: luajit values.lua [READY]
-- Variables of every kind, some levels deep. Writes what debug.getlocal() and debug.getupvalue()
-- say of each level to READY (standard output), one line a variable, then waits for its input to end.
local ok, ffi = pcall(require, "ffi")
local out = arg and arg[1] and io.open(arg[1], "w") or io.stdout
if not ok then ffi = nil end
if ok then
  ffi.cdef("typedef struct point { int x, y; } point_t; enum color { RED, GREEN }; typedef int (*callback_t)(int);")
end

local function show(value)
  local kind = type(value)
  if kind == "string" then return ("%q"):format(value):gsub("\n", "n") end
  if kind == "number" or kind == "boolean" or kind == "nil" then return tostring(value) end
  return kind
end

local function tell()
  for level = 2, 20 do
    local info = debug.getinfo(level, "Sf")
    if not info then break end
    if info.what ~= "C" then
      out:write("frame ", info.linedefined, "\n")
      for i = 1, 250 do
        local name, value = debug.getlocal(level, i)
        if not name then break end
        if name:sub(1, 1) ~= "(" then out:write("local ", name, " ", show(value), "\n") end
      end
      for i = 1, 250 do
        local name, value = debug.getlocal(level, -i)
        if not name then break end
        out:write("vararg ", i, " ", show(value), "\n")
      end
      for i = 1, 250 do
        local name, value = debug.getupvalue(info.func, i)
        if not name then break end
        out:write("upvalue ", name, " ", show(value), "\n")
      end
    end
  end
  out:write("ready\n")
  out:flush()
  io.read("*a")
end

local shared = "an upvalue"
local counter = 41
local function scalars()
  local n, s, b, nothing = 1.5, "text", true, nil
  local big, negative, huge = 2 ^ 53, -17, 1 / 0
  local binary = "a\0b\255\n\"\\"
  local long = ("x"):rep(1000)
  counter = counter + 1
  do
    local inner = "only here"
    local n = "shadows"
    tell()
    inner, n = n, inner
  end
  local later = "not yet"
  return n, s, b, nothing, big, negative, huge, binary, long, later, shared
end
local function tables()
  local list = { 10, 20, 30, nil, 50 }
  local map = { name = "x", [true] = 1, [1.5] = "half", ["not a name"] = 2 }
  local nested = { a = { b = { c = { d = 1 } } } }
  local cycle = {}
  cycle.self = cycle
  local wide = {}
  for i = 1, 1000 do wide[i] = i end
  local empty = {}
  local r = scalars()
  return list, map, nested, cycle, wide, empty, r
end
local function functions(first, second, ...)
  local lua, fast, c = show, string.format, ok and io.lines or print
  local co = coroutine.create(tables)
  local file = io.stdin
  for i = 7, 7 do
    for k, v in pairs({ key = "value" }) do
      local r = tables()
      if r then return first, second, lua, fast, c, co, file, i, k, v, ... end
    end
  end
end
local function cdatas(...)
  if not ok then return functions(...) end
  local i64, u64 = ffi.new("int64_t", -5), ffi.new("uint64_t", 2 ^ 63)
  local point = ffi.new("point_t", 3, 4)
  local pointer = ffi.cast("const char *", 0x1234)
  local array = ffi.new("int[3][4]")
  local color = ffi.new("enum color", 1)
  local callback = ffi.cast("callback_t", 0)
  local r = functions(...)
  return i64, u64, point, pointer, array, color, callback, r
end
local result = cdatas("first", 2, "vararg", 3, nil, true)
return result
