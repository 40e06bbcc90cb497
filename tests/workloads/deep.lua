-- SPDX-License-Identifier: MIT
-- usage: luajit deep.lua SECONDS [jit|nojit] [DEPTH]
-- A stack of DEPTH Lua frames (10000) at the moment of sampling; and the same with a
-- stack that grows and shrinks all the time.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local depth = tonumber(arg[3]) or 10000

local function bottom()
  local x = 0
  for i = 1, 300000 do x = x + i % 7 end
  return x
end
local function descend(d)
  if d == 0 then
    local x = bottom()
    return x
  end
  local x = descend(d - 1)
  return x + 1
end
local function w_deep(n)
  for _ = 1, n do descend(depth) end
end

drive({ { "w_deep", w_deep } }, seconds)
