-- SPDX-License-Identifier: MIT
-- usage: luajit corners.lua SECONDS [jit|nojit]
-- The rarely used ways through the interpreter: stacks that must grow in the middle
-- of an instruction, arguments that C code converts before an instruction runs again,
-- bytecode that is patched because a guess was wrong, and the last few opcodes.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)
local bit = require("bit")

local many = {}
for i = 1, 150 do many[i] = i end
local text = ("x"):rep(300)

local function count(...) return select("#", ...) end
local function pass(...) return count(...) end
local function back(...) return ... end
local function ask(...) return coroutine.yield(...) end
local function deep(n)
  local x = math.abs("-1") + bit.band("7", 3) + #tostring(n)
  if n > 0 then x = x + deep(n - 1) end
  return x
end
-- In a fresh coroutine little is needed to run out of stack.
local function w_growth(n)
  local x, resume, wrap, create = 0, coroutine.resume, coroutine.wrap, coroutine.create
  for i = 1, n do
    x = x + wrap(pass)(unpack(many)) + count(wrap(back)(unpack(many))) + wrap(deep)(60)
    local asked = create(ask)
    resume(asked, unpack(many))
    x = x + count(resume(asked, unpack(many, 1, i % 150)))
    local outer = wrap(function() --@many_results
      local inner = create(back)
      local _, a = resume(inner, unpack(many))
      local other = wrap(back)
      return a + count(other(unpack(many)))
    end)
    x = x + outer()
  end
  return x
end

local held, name, flag = nil, "a", true
local function set_upvalues(i)
  held, name, flag = { i }, "b", i % 2 == 0
  name = i % 2 == 0 and "c" or name
  if i % 4 == 0 then name = "d" end
  local even = not flag
  held = even
  held = tostring(i)
end
local function nothing() end
local function one() return 1 end
local function w_opcodes(n)
  local x = 0
  for i = 1, n do
    local a, b, c, d
    local e, f = nothing()
    local g, h = one()
    local k = i + 0.5
    set_upvalues(i)
    corners_global = i
    x = x + 2 * k + 3 / k + 7 % k + 5 - k + (2 - k) * 3
    if not (k <= 3) then x = x + 1 end
    if k <= i then x = x + 1 elseif not a and not b then x = x - 1 end
    if name <= "b" and name ~= "x" and held ~= 3 and e == nil and flag ~= nil then x = x + 1 end
    if g ~= k and k ~= 2 and h == c and f == d and flag == true then x = x + 1 end
    x = x % 1000 + (corners_global - i)
  end
  return x
end

local numbers = setmetatable({}, {
  __mul = function() return 1 end,
  __mod = function() return 1 end,
  __sub = function() return 1 end,
  __lt = function() return true end,
  __le = function() return false end,
})
local named = setmetatable({}, { __metatable = "locked", __tostring = function() return "n" end })
local keyed = setmetatable({}, { __index = function(_, k) return k end, __newindex = nothing })
local plain = setmetatable({}, { __mode = "k" })
local function w_metamethods(n)
  local x = 0
  for i = 1, n do
    x = x + 2 * numbers + 5 % numbers + 7 - numbers + #tostring(named) + #getmetatable(named)
    x = x + (numbers < numbers and 1 or 2) + (numbers <= numbers and 1 or 2)
    local _, s = pcall(tostring, named)
    x = x + #s + keyed[i] + #keyed.text + keyed[1.5] + (keyed[true] and 1 or 2)
    keyed[i], keyed.text, keyed[1.5], keyed[true] = 1, 2, 3, 4
    plain[i % 8], plain.text, plain[1.5], plain[false] = i, i, i, i
    plain[i % 8], plain.text, plain[1.5], plain[false] = nil, nil, nil, nil
    x = x + (plain[i % 8] or 0) + (plain[false] or 0) + (getmetatable(i) and 1 or 0)
    setmetatable(plain, getmetatable(plain))
    x = x % 1000
  end
  return x
end

local function first(t, k) if not k then return 1, t end end
local function over(f, t)
  local x = 0
  for k in f, t do x = x + k end
  return x
end
local function bound(n)
  local x = 0
  for i = 1, n do x = x + i end
  return x
end
-- Each has bytecode of its own, which is patched when it runs.
local patched = "local pairs, f = ... local x = 0 for k in pairs({ 1, 2 }) do x = x + 1 end return x"
local function w_patched(n)
  local x = 0
  for i = 1, n do
    local chunk = loadstring(patched, "=patched")
    x = x + chunk(pairs) + chunk(ipairs) + chunk(pairs)
    x = x + over(first, many) + bound(i % 3) + bound(0)
    for k = "1", "3" do x = x + k end
    for k = 1, 3 do for _ = k, 2 do x = x + 1 end end
  end
  return x
end

-- Written in Lua, as bytecode that only LuaJIT itself makes.
local function w_builtin(n)
  local x, sum = 0, 0
  local function add(_, v) sum = sum + v end
  for i = 1, n do
    local t = { 1, 2, 3, i }
    table.foreach(t, add)
    table.foreachi(t, add)
    x = x + table.getn(t) + table.remove(t, 2) + (table.remove(t) or 0)
    t[300] = 1
    t[299] = nil
    table.insert(t, 2, i)
    pcall(table.foreach, 1, add)
    pcall(table.getn, nil)
  end
  return x + sum
end

local function w_strings(n)
  local x = 0
  for i = 1, n do
    x = x + text:byte() + text:byte(2) + (("").byte("") or 0) + #text:sub(5, 4) + #text:sub(-400, 400)
    x = x + #text:reverse() + #text:lower() + #text:upper() + #string.char(65) + #string.char(65, 66, 67)
    x = x + #tostring(i / 3) + #(text .. i) + (tonumber("  12  ") or 0) + math.abs("3") + math.floor("2.5")
    x = x + bit.band("3", 5) + bit.bor("1", "2") + tonumber(bit.band(3LL, 5LL)) + #text:sub("2", "4")
    x = x + assert(i, text) + (select("#", assert(1, 2, 3))) + math.max("1", 2) + math.min(1, "2")
    pcall(math.abs, text)
    pcall(string.sub)
    pcall(assert, false)
    pcall(assert, nil, text)
    x = x % 1000
  end
  return x
end

drive({
  { "w_growth", w_growth }, { "w_opcodes", w_opcodes }, { "w_metamethods", w_metamethods },
  { "w_patched", w_patched }, { "w_builtin", w_builtin }, { "w_strings", w_strings },
}, seconds)
