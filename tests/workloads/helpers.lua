-- SPDX-License-Identifier: MIT
-- usage: luajit helpers.lua SECONDS [jit|nojit]
-- Code whose time is spent in routines that the interpreter and traces reach by
-- a plain call: floor, ceil, truncation, modulo of integers and numbers, power,
-- table iteration, conversions.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local floor, ceil, pow, modf, max, min = math.floor, math.ceil, math.pow, math.modf, math.max, math.min
local hash = {}
for i = 1, 200 do hash["key" .. i] = i end

local function w_floor(n)
  local x = 0.5
  for i = 1, n do
    x = x + floor(x * 1.25 - i) - ceil(x * 0.75 - i)
    if x > 1e9 or x < -1e9 then x = 0.5 end
  end
  return x
end

local function w_mod_number(n)
  local x = 12345.678
  for i = 1, n do x = (x * 1.7 + i) % 977.5 end
  return x
end

local function w_mod_integer(n)
  local x = 0
  for i = 1, n do x = x + i % 7 - (-i) % 13 end
  return x
end

local function w_power(n)
  local x = 0
  for i = 1, n do x = x + (i % 17) ^ 1.5 + pow(i % 5, 3) + 2 ^ (i % 9) end
  return x
end

local function w_next(n)
  local x = 0
  for _ = 1, n do
    for _, v in pairs(hash) do x = x + v end
  end
  return x
end

local function w_next_call(n)
  local x = 0
  for _ = 1, n do
    local key, value = next(hash)
    while key do
      x = x + value
      key, value = next(hash, key)
    end
  end
  return x
end

local function w_convert(n)
  local x = 0
  for i = 1, n do
    local s = i % 100 .. ""
    x = x + s + modf(i / 3) + max(i % 3, 1.5) + min(i, 7) + tonumber("12.5")
  end
  return x
end

drive({
  { "w_floor", w_floor }, { "w_mod_number", w_mod_number }, { "w_mod_integer", w_mod_integer },
  { "w_power", w_power }, { "w_next", w_next }, { "w_next_call", w_next_call }, { "w_convert", w_convert },
}, seconds)
