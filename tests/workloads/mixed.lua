-- SPDX-License-Identifier: MIT
-- usage: luajit mixed.lua SECONDS [jit|nojit] [DEPTH [TURNS]]
-- A steady stack of about DEPTH frames (40): Lua functions, with a C boundary (gsub) at every
-- tenth and a coroutine at every fortieth. Asks for the time each TURNS (20000) turns of a loop.
-- Prints `work N`, what it got done.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local depth, turns = tonumber(arg[3]) or 40, tonumber(arg[4]) or 20000
local gsub, wrap = string.gsub, coroutine.wrap

local units = 0
local function bottom(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  units = units + n
  return x
end
local limit = os.clock() + seconds
local function stay()
  repeat
    local x = bottom(turns)
  until os.clock() > limit or x < 0
end
local level
local function via_gsub(d)
  local function replace() level(d) end
  local text = gsub("x", "x", replace)
  return text
end
local function via_coroutine(d)
  local inner = wrap(level)
  local x = inner(d)
  return x
end
function level(d)
  if d <= 0 then
    stay()
    return 0
  end
  local x
  if d % 40 == 0 then
    x = via_coroutine(d - 3)
  elseif d % 10 == 0 then
    x = via_gsub(d - 6)
  else
    x = level(d - 1)
  end
  return x
end
level(depth)
print("work " .. units)
