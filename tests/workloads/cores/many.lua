-- SPDX-License-Identifier: MIT
-- usage: luajit many.lua COROUTINES OBJECTS: makes them, says "ready", and waits for its input to end.
local coroutines, objects = tonumber(arg[1]), tonumber(arg[2])
local threads, keep = {}, {}
local function deep(n)
  local result
  if n == 0 then result = coroutine.yield() else result = deep(n - 1) end
  return result
end
for i = 1, coroutines do
  threads[i] = coroutine.create(deep)
  coroutine.resume(threads[i], i % 10)
end
for i = 1, objects do keep[i] = i % 2 == 0 and { i } or function() return i end end
io.write("ready\n")
io.flush()
io.read("*a")
