-- SPDX-License-Identifier: MIT
-- usage: luajit cost.lua NAME: one of ten small programs, all alike each time they run. Without a name: their names.
local works = {}

function works.calls()
  local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
  return fib(24)
end
function works.tables()
  local t = {}
  for i = 1, 60000 do t[i % 1000] = { i, i + 1 } end
  return #t
end
function works.closures()
  local s = 0
  for i = 1, 60000 do
    local f = function() return i end
    s = s + f()
  end
  return s
end
function works.strings()
  local t = {}
  for i = 1, 30000 do t[i % 100] = "key" .. i end
  return #t
end
function works.patterns()
  local n = 0
  for i = 1, 3000 do n = n + #(("a b c d e"):gsub("%w", "x")) end
  return n
end
function works.sort()
  local t = {}
  for i = 1, 12000 do t[i] = (i * 7919) % 10007 end
  table.sort(t)
  return t[1]
end
function works.matrix()
  local n, a, s = 60, {}, 0
  for i = 1, n do
    a[i] = {}
    for j = 1, n do a[i][j] = i * j % 7 end
  end
  for i = 1, n do
    for j = 1, n do
      local x = 0
      for k = 1, n do x = x + a[i][k] * a[k][j] end
      s = s + x
    end
  end
  return s
end
function works.objects()
  local class = {}
  class.__index = class
  function class:add(n) self.sum = self.sum + n end
  local o = setmetatable({ sum = 0 }, class)
  for i = 1, 300000 do o:add(i) end
  return o.sum
end
function works.coroutines()
  local s = 0
  for _ = 1, 3000 do
    local co = coroutine.wrap(function() for i = 1, 8 do coroutine.yield(i) end end)
    for _ = 1, 8 do s = s + co() end
  end
  return s
end
function works.errors()
  local n = 0
  for i = 1, 6000 do
    if not pcall(error, i) then n = n + 1 end
  end
  return n
end

local name = ...
if name then
  print(works[name]())
else
  for key in pairs(works) do print(key) end
end
