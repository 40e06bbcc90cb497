-- SPDX-License-Identifier: MIT
-- usage: luajit growth.lua SECONDS [jit|nojit]
-- Stacks that grow and shrink: fresh coroutines that recurse, large unpacks, overflow
-- caught by pcall, and collections in between that shrink what is not used.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local function down(d)
  if d == 0 then return 0 end
  local x = down(d - 1)
  return x + 1
end
local function w_coroutines(n)
  for _ = 1, n do
    local run = coroutine.wrap(down)
    run(180)
  end
end
local list = {}
for i = 1, 2000 do list[i] = i end
local function take(...) return select("#", ...) end
local function w_unpack(n)
  local x = 0
  for _ = 1, n do x = x + (take(unpack(list))) end
  return x
end
local function endless(n)
  local x = endless(n + 1)
  return x + 1
end
local function w_overflow(n)
  for _ = 1, n do
    local ok = pcall(endless, 0)
    if ok then error("no overflow") end
  end
end
local function w_shrink(n)
  for i = 1, n do
    down(150)
    if i % 64 == 0 then collectgarbage("step", 200) end
  end
end

drive({
  { "w_coroutines", w_coroutines }, { "w_unpack", w_unpack }, { "w_overflow", w_overflow }, { "w_shrink", w_shrink },
}, seconds)
