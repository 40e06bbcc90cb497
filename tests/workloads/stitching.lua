-- SPDX-License-Identifier: MIT
-- usage: luajit stitching.lua SECONDS [jit|nojit]
-- Calls that no trace can contain, recorded all the time: with none to four arguments, by a vararg, by pcall().
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)
local clock, gsub, match = os.clock, string.gsub, string.match
if jit then jit.opt.start("hotloop=1", "hotexit=1") end

local function none() return clock() * 0 end
local function two() return #match("abc", "b") end
local function three() return #gsub("abcd", "b", "x") end
local function four(text, count) return #gsub(text, "b", "x", count) end
local function given(...) return #gsub(...) end
local function protected()
  local _, text = pcall(gsub, "aaa", "b", "c", 2)
  return #text
end

local function calls(k)
  local x = 0
  for _ = 1, 9 do
    if k == 0 then
      x = x + none()
    elseif k == 1 then
      x = x + two()
    elseif k == 2 then
      x = x + three()
    elseif k == 3 then
      x = x + four("abcd", 1)
    elseif k == 4 then
      x = x + given("abcd", "b", "x")
    else
      x = x + protected()
    end
  end
  return x
end
local function w_stitch(n)
  local x = 0
  for round = 1, n do
    jit.flush()
    x = x + calls(round % 6)
  end
  return x
end

drive({ { "w_stitch", w_stitch } }, seconds)
