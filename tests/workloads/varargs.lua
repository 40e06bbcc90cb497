-- SPDX-License-Identifier: MIT
-- usage: luajit varargs.lua SECONDS [jit|nojit]
-- Vararg functions with 0, 1 and 200 extra arguments, nested, called from Lua, from C,
-- from a coroutine, and a vararg chunk.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local args = {}
for i = 1, 200 do args[i] = i end

local function spin(n)
  local x = 0
  for i = 1, n do x = x + i % 9 end
  return x
end
local function third(...)
  local a, b = ...
  local x = spin(400)
  return x + (a or 0) + (b or 0)
end
local function second(...)
  local x = third(...)
  return x + select("#", ...)
end
local function first(...)
  local x = second(...)
  return x + 1
end
local function w_none(n)
  for _ = 1, n do first() end
end
local function w_one(n)
  for i = 1, n do first(i) end
end
local function w_many(n)
  for _ = 1, n do first(unpack(args)) end
end

local function compare(...)
  local a, b = ...
  spin(100)
  return a < b
end
local function w_sort(n)
  for _ = 1, n do
    local list = { 5, 3, 9, 1, 7 }
    table.sort(list, compare)
  end
end

local function body(...)
  local x = 0
  for i = 1, select("#", ...) do
    x = x + select(i, ...)
    coroutine.yield(x)
    spin(50)
  end
  return x
end
local function w_coroutine(n)
  for _ = 1, n do
    local co = coroutine.wrap(body)
    for _ = 1, 6 do co(1, 2, 3, 4, 5) end
  end
end

local function collect(...)
  local list = { ... }
  local x = spin(50)
  return #list + x
end
local function w_collect(n)
  for _ = 1, n do collect(unpack(args, 1, 60)) end
end

drive({
  { "w_none", w_none }, { "w_one", w_one }, { "w_many", w_many },
  { "w_sort", w_sort }, { "w_coroutine", w_coroutine }, { "w_collect", w_collect },
}, seconds)
