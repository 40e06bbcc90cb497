-- SPDX-License-Identifier: MIT
-- usage: luajit fastfuncs.lua SECONDS [jit|nojit]
-- Builtin functions on top of the stack, those written in assembler and those in C,
-- each under a function that does nothing else.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local parts, keys = {}, { a = 1 }
for i = 1, 200 do parts[i] = "part" .. i end
local bit = require "bit"

local function w_tostring(n) for i = 1, n do tostring(i * 1.5) end end
local function w_tonumber(n) for _ = 1, n do tonumber("0x1234", 16) tonumber("12.5") end end
local function w_rep(n) for i = 1, n do string.rep("ab", i % 64) end end
local function w_sub(n) for i = 1, n do string.sub("abcdefgh", i % 4 + 1, -2) end end
local function w_byte(n) for i = 1, n do string.byte("abcdefgh", i % 8 + 1) string.char(65 + i % 26) end end
local function w_case(n) for _ = 1, n do string.upper("hello world") string.lower("HELLO") string.reverse("abc") end end
local function w_find(n) for _ = 1, n do string.find("the quick brown fox", "f%a+") string.match("k=v", "(%w)=(%w)") end end
local function w_format(n) for i = 1, n do string.format("%d:%s:%5.2f:%q", i, "x", i, "y") end end
local function w_concat(n) for _ = 1, n do table.concat(parts, ",") end end
local function w_unpack(n) for _ = 1, n do select("#", unpack(parts)) end end
local function w_raw(n) for i = 1, n do rawset(keys, "b", i) rawget(keys, "a") rawequal(keys, i) end end
local function w_meta(n) for _ = 1, n do setmetatable({}, keys) getmetatable("") end end
local function w_type(n) for i = 1, n do assert(type(i)) end end
local function w_insert(n)
  for _ = 1, n do
    local t = {}
    for k = 1, 20 do table.insert(t, k) end
    for _ = 1, 20 do table.remove(t) end
  end
end
local function w_math(n)
  local x = 0
  for i = 1, n do
    x = x + math.sqrt(i) + math.sin(i) + math.exp(i % 5) + math.log(i) + math.abs(-i) + math.atan2(i, 3) +
      math.random(10) + math.ldexp(i, 2) + math.frexp(i)
  end
  return x
end
local function w_bit(n)
  local x = 0
  for i = 1, n do x = bit.bxor(bit.band(x, 0xff), bit.lshift(i, 3), bit.bnot(i), bit.rol(x, 5), bit.tobit(i)) end
  return x
end
local function w_iterate(n)
  for _ = 1, n do
    for _ in ipairs(parts) do end
    for _ in pairs(parts) do end
  end
end
local function w_pcall(n) for i = 1, n do pcall(type, i) pcall(string.rep, "x", 3) pcall(error, "x") end end
local function w_coroutine(n)
  for _ = 1, n do
    local co = coroutine.create(type)
    coroutine.resume(co, 1)
    coroutine.status(co)
  end
end
local function w_debug(n) for _ = 1, n do debug.getinfo(1, "Sl") debug.traceback("x", 1) end end

local works = {}
for name, work in pairs({
  w_tostring = w_tostring, w_tonumber = w_tonumber, w_rep = w_rep, w_sub = w_sub, w_byte = w_byte, w_case = w_case,
  w_find = w_find, w_format = w_format, w_concat = w_concat, w_unpack = w_unpack, w_raw = w_raw, w_meta = w_meta,
  w_type = w_type, w_insert = w_insert, w_math = w_math, w_bit = w_bit, w_iterate = w_iterate, w_pcall = w_pcall,
  w_coroutine = w_coroutine, w_debug = w_debug,
}) do
  works[#works + 1] = { name, work }
end
drive(works, seconds)
