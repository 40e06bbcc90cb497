-- SPDX-License-Identifier: MIT
-- usage: luajit opcodes.lua SECONDS [jit|nojit]
-- What the other workloads leave out of the interpreter's instructions and its
-- own functions: every math and bit function, constants and comparisons of
-- cdata, loops that turn out to be other loops, calls of what is no function,
-- missing and surplus values.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)
local ffi, bit = require("ffi"), require("bit")
local m = math

local function w_math(n)
  local x = 0
  for i = 1, n do
    local y = (i % 9) / 10
    x = x + m.asin(y) + m.acos(y) + m.atan(y) + m.sinh(y) + m.cosh(y) + m.tanh(y) + m.tan(y)
    x = x + m.sin(y) + m.cos(y) + m.exp(y) + m.log(y + 1) + m.log10(y + 1) + m.log(8, 2)
    x = x + m.atan2(y, 2) + m.fmod(i, 3) + m.pow(y, 2) + m.ldexp(y, 2) + m.deg(y) + m.rad(y)
    x = x + m.sqrt(y) + m.abs(-y) + m.max(y, i, 3) + m.min(y, i, 3) + m.floor(-y) + m.ceil(-y)
    x = x + m.frexp(y) + m.modf(-y) + (-x) % 7.5 + 2 ^ y
    x = x % 1000
  end
  return x
end

local function w_bits(n)
  local x = 1
  for i = 1, n do
    x = bit.tobit(x + i) + bit.band(x, i, 255) + bit.bor(x, i, 1) + bit.bxor(x, i, 7) + bit.bnot(i)
    x = bit.lshift(x, i % 5) + bit.rshift(x, 3) + bit.arshift(x, 2) + bit.rol(x, 3) + bit.ror(x, i)
    x = bit.bswap(x) + bit.band(x + 0.5, 2 ^ 31) + bit.bor(-1.5)
  end
  return x
end

local function w_cdata(n)
  local x = 0
  for i = 1, n do
    local a, b = 12LL, 13ULL
    if a == b or a < b and a ~= 5 then x = x + 1 end
    if a ~= nil and a <= 12LL and a + i > 3 then x = x + 1 end
    local p = ffi.new("int[3]", i)
    p[1] = p[0] + 1
    x = x + p[1] + tonumber(a * 2 + b) + #tostring(a)
  end
  return x
end

local function nothing() end
local function several() return 1, nil, 3 end
local function take(a, b, c, ...) return a, b, c, select("#", ...) end
local function pass(...)
  local a, b, c, d = ...
  return d, c, b, a, ...
end
local function w_values(n)
  local x = 0
  for i = 1, n do
    local a, b, c, d, e = nothing()
    local f, g, h, k = several()
    local p, q, r, s = take(several())
    p, q, r, s = take(i, pass(i, several()))
    local t = { several(), pass(i) }
    x = x + (a and 1 or 0) + f + #t + s + (e or b or c or d or g or h or k and 1 or 2)
  end
  return x
end

local callable = setmetatable({}, { __call = function(_, a, b) return a and b end })
local function tail_callable(a) return callable(a, 2) end
local function w_callable(n)
  local x = 0
  for i = 1, n do
    x = x + callable(i, 1) + tail_callable(i)
    pcall(callable, i, 2)
    pcall(coroutine.wrap(tail_callable), i)
    table.sort({ 3, 1, 2 }, nil)
  end
  return x
end

local function iterator(t, k) return next(t, k) end
local function walk(f, t, k)
  local x = 0
  for _, v in f, t, k do x = x + v end
  return x
end
local function w_loops(n)
  local x, list, hash = 0, { 1, 2, nil, 4 }, { a = 1, b = 2 }
  for i = 1, n do
    x = x + walk(next, list) + walk(iterator, hash) + walk(ipairs(list))
    for k = 3, 1, -1 do x = x + k end
    for k = 0.5, 2.5, 0.5 do x = x + k end
    for _ = 2, 1 do x = 0 end
    local k = 0
    while k < 3 do k = k + 1 end
    repeat k = k - 1 until k == 0
    x = x + #list + #hash + (x == 3 and 1 or 0) + (hash.a == "x" and 1 or 2) + (hash[i] == true and 1 or 2)
    x = x % 1000
  end
  return x
end

local text = ("x"):rep(20)
local function w_objects(n)
  local x = 0
  for i = 1, n do
    local t = { [i] = text, [1.5] = i, [text] = i, n = nil }
    t[i], t[1.5], t[text], t[2] = nil, t[text], i, text
    rawset(t, i, rawget(t, 2))
    local meta = getmetatable(text)
    x = x + #t + (meta.__index == string and 1 or 0) + (rawequal(t, meta) and 1 or 2) + #type(t)
    x = x + text:byte(1, 3) + #text:sub(-3) + #text:sub(2, 30) + #string.char(65, 66) + tonumber("0x1f", 16)
    x = x + tonumber("12") + #tostring(x) + #tostring(nil) + (tonumber(text) or 0) + #(i .. text .. 1.5)
    x = x % 1000
  end
  return x
end

drive({
  { "w_math", w_math }, { "w_bits", w_bits }, { "w_cdata", w_cdata }, { "w_values", w_values },
  { "w_callable", w_callable }, { "w_loops", w_loops }, { "w_objects", w_objects },
}, seconds)
