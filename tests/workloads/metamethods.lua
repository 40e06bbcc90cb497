-- SPDX-License-Identifier: MIT
-- usage: luajit metamethods.lua SECONDS [jit|nojit]
-- Every metamethod, as a Lua function with work of its own, so that samples land
-- on top of its continuation frame.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local function busy(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  return x
end
local function on_index(_, key) return busy(100) + key end
local function on_newindex() busy(100) end
local function on_call(_, n) return busy(100) + n end
local function on_eq()
  busy(100)
  return false
end
local function on_lt()
  busy(100)
  return true
end
local function on_le()
  busy(100)
  return true
end
local function on_concat()
  busy(100)
  return "text"
end
local function on_len() return busy(100) + 1 end
local function on_add() return busy(100) + 1 end
local function on_sub() return busy(100) + 1 end
local function on_mul() return busy(100) + 1 end
local function on_div() return busy(100) + 1 end
local function on_mod() return busy(100) + 1 end
local function on_pow() return busy(100) + 1 end
local function on_unm() return busy(100) + 1 end
local function on_tostring()
  busy(100)
  return "object"
end

local class = {
  __index = on_index, __newindex = on_newindex, __call = on_call, __eq = on_eq, __lt = on_lt,
  __le = on_le, __concat = on_concat, __add = on_add, __sub = on_sub, __mul = on_mul,
  __div = on_div, __mod = on_mod, __pow = on_pow, __unm = on_unm, __tostring = on_tostring,
}
local p, q = setmetatable({}, class), setmetatable({}, class)
local u = newproxy(true)
getmetatable(u).__len = on_len
getmetatable(u).__index = on_index

local function w_access(n)
  local x = 0
  for i = 1, n do
    x = x + p[i] + u[i]
    p.field = i
    p[i] = x
    q[1] = 2
  end
  return x
end
local function w_compare(n)
  local x = 0
  for _ = 1, n do
    if p == q then x = x + 1 end
    if p ~= q then x = x + 1 end
    if p < q then x = x + 1 end
    if p <= q then x = x + 1 end
    if not (q > p) then x = x + 1 end
    x = x + (p >= q and 1 or 0)
  end
  return x
end
local function w_arithmetic(n)
  local x = 0
  for i = 1, n do
    x = x + (p + q) + (p - i) + (i * p) + (p / 2) + (p % 3) + (2 ^ p) + -p
  end
  return x
end
local function w_concat(n)
  local x = 0
  for i = 1, n do
    local text = "a" .. i .. p
    local other = p .. "b" .. i .. "c"
    x = x + #text + #other
  end
  return x
end
local function w_call(n)
  local x = 0
  for i = 1, n do
    x = x + p(i)
    local _, y = pcall(p, i)
    x = x + y
  end
  return x
end
local function w_length(n)
  local x = 0
  for _ = 1, n do x = x + #u end
  return x
end
local function w_tostring(n)
  local x = 0
  for _ = 1, n do
    local text = tostring(p)
    local other = string.format("%s", q)
    x = x + #text + #other
  end
  return x
end
-- Two levels: an __index that is a table whose own __index is a function.
local outer = setmetatable({}, { __index = p })
local function w_chain(n)
  local x = 0
  for i = 1, n do x = x + outer[i + 1] end
  return x
end
-- A metamethod entered from a metamethod.
local function on_index_string() return busy(50) + 1 end
local r = setmetatable({}, { __index = on_index_string, __add = on_add })
local function nested_add(a)
  local x = r + a.value
  return x + r.anything
end
local nest = setmetatable({ value = 1 }, { __add = nested_add })
local function w_nested(n)
  local x = 0
  for i = 1, n do x = x + (nest + i) end
  return x
end

drive({
  { "w_access", w_access }, { "w_compare", w_compare }, { "w_arithmetic", w_arithmetic },
  { "w_concat", w_concat }, { "w_call", w_call }, { "w_length", w_length },
  { "w_tostring", w_tostring }, { "w_chain", w_chain }, { "w_nested", w_nested },
}, seconds)
