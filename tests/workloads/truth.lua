-- SPDX-License-Identifier: MIT
-- usage: luajit truth.lua SECONDS [jit|nojit]
-- Many kinds of work, each under a function of its own whose time is measured.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local floor, ceil, fmod = math.floor, math.ceil, math.fmod
local rep, sub, byte, format, gsub = string.rep, string.sub, string.byte, string.format, string.gsub
local find, upper, reverse, gmatch = string.find, string.upper, string.reverse, string.gmatch
local concat, insert, sort = table.concat, table.insert, table.sort
local wrap, yield, create, resume = coroutine.wrap, coroutine.yield, coroutine.create, coroutine.resume

-- recursion
local function fib(n)
  if n < 2 then return n end
  return fib(n - 1) + fib(n - 2)
end
local function w_recursion(n)
  local x = 0
  for i = 1, n do x = x + fib(14 + i % 2) end
  return x
end

-- mutual recursion that builds and walks a tree
local function grow(depth)
  if depth == 0 then return { value = 1 } end
  return { left = grow(depth - 1), right = grow(depth - 1), value = depth }
end
local function weigh(node)
  local sum = node.value
  if node.left then sum = sum + weigh(node.left) end
  if node.right then sum = sum + weigh(node.right) end
  return sum
end
local function w_tree(n)
  local x = 0
  for _ = 1, n do
    local tree = grow(6)
    x = x + weigh(tree)
  end
  return x
end

-- closures
local function counter(start)
  local value = start
  local function bump(by)
    value = value + by
    return value
  end
  return bump
end
local function compose(f, g)
  local function both(x)
    local y = g(x)
    local z = f(y)
    return z
  end
  return both
end
local function w_closures(n)
  local x = 0
  for i = 1, n do
    local add = compose(counter(i), counter(-i))
    for k = 1, 20 do x = x + add(k) end
  end
  return x
end

-- string functions
local function mangle(s, i)
  local t = upper(rep(s, i % 7 + 1))
  local u = reverse(sub(t, 2, -2))
  return byte(u, 1) + (find(u, "OLLE", 1, true) or 0)
end
local function w_strings(n)
  local x = 0
  for i = 1, n do x = x + mangle("hello", i) end
  return x
end

-- format, concat, tostring
local function render(i)
  local parts = {}
  for k = 1, 8 do parts[k] = format("%d:%s:%5.2f", i, "k" .. k, i / k) end
  local text = concat(parts, ",")
  return #text + #tostring(i * 1.5)
end
local function w_format(n)
  local x = 0
  for i = 1, n do x = x + render(i) end
  return x
end

-- string.gsub with a callback
local function swap(word)
  local first = sub(word, 1, 1)
  return sub(word, 2) .. first
end
local function w_gsub(n)
  local x = 0
  for i = 1, n do
    local text = gsub("the quick brown fox jumps over " .. i, "%a+", swap)
    x = x + #text
  end
  return x
end

-- string.gmatch
local function tally(text)
  local seen = {}
  for word in gmatch(text, "%w+") do seen[word] = (seen[word] or 0) + 1 end
  return seen.a
end
local function w_gmatch(n)
  local x = 0
  for i = 1, n do x = x + tally("a b c a " .. i % 10 .. " d a e f a") end
  return x
end

-- table.sort with a comparator
local function smaller(a, b) return a.key < b.key end
local function w_sort(n)
  local x = 0
  for i = 1, n do
    local list = {}
    for k = 1, 24 do list[k] = { key = (k * 7919 + i) % 101 } end
    sort(list, smaller)
    x = x + list[1].key
  end
  return x
end

-- table functions
local function shuffle_in(list, i)
  for k = 1, 16 do insert(list, k % 3 + 1, i * k) end
  local sum = 0
  for _, v in ipairs(list) do sum = sum + v end
  for k, v in pairs(list) do sum = sum + k - v end
  return sum + select("#", unpack(list))
end
local function w_tables(n)
  local x = 0
  for i = 1, n do x = x + shuffle_in({ 1, 2, 3 }, i) end
  return x
end

-- coroutine.wrap as an iterator
local function numbers(limit)
  local function generate()
    for i = 1, limit do yield(i) end
  end
  return wrap(generate)
end
local function w_wrap(n)
  local x = 0
  for _ = 1, n do
    for v in numbers(20) do x = x + v end
  end
  return x
end

-- a chain of three coroutines
local function spin(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  return x
end
local function inner_body()
  for i = 1, 4 do
    spin(60)
    yield(i)
  end
end
local function middle_body()
  local co = create(inner_body)
  for _ = 1, 4 do
    local _, v = resume(co)
    spin(40)
    yield(v)
  end
end
local function outer_body()
  local co = create(middle_body)
  for _ = 1, 4 do
    local _, v = resume(co)
    spin(20)
    yield(v)
  end
end
local function w_resume(n)
  local x = 0
  for _ = 1, n do
    local co = create(outer_body)
    for _ = 1, 4 do
      local _, v = resume(co)
      x = x + v
    end
  end
  return x
end

-- pcall, xpcall, errors
local function risky(i)
  if i % 4 == 0 then error("four") end
  return i
end
local function handler(message) return #message end
local function guarded(i)
  local ok, v = pcall(risky, i)
  return ok and v or 1
end
local function w_pcall(n)
  local x = 0
  for i = 1, n do
    x = x + guarded(i)
    local _, v = xpcall(risky, handler, i)
    x = x + v
  end
  return x
end

-- metamethods of access
local function on_index(_, key) return key * 2 end
local function on_newindex(t, key, value)
  if key % 50 == 0 then rawset(t, key, value) end
end
local function w_index(n)
  local proxy = setmetatable({}, { __index = on_index, __newindex = on_newindex })
  local x = 0
  for i = 1, n do
    proxy[i + 100] = i
    x = x + proxy[-i]
  end
  return x
end

-- metamethods of operators
local vector = {}
local function make_vector(a) return setmetatable({ a = a }, vector) end
local function on_add(p, q) return make_vector(p.a + q.a) end
local function on_less(p, q) return p.a < q.a end
local function on_equal(p, q) return p.a == q.a end
local function on_concat(p, q) return (type(p) == "table" and p.a or p) .. (type(q) == "table" and q.a or q) end
local function on_call(p, by) return p.a * by end
local function on_length() return 3 end
vector.__add, vector.__lt, vector.__eq, vector.__concat, vector.__call =
  on_add, on_less, on_equal, on_concat, on_call
local lengthy = newproxy(true)
getmetatable(lengthy).__len = on_length
local function operate(i)
  local p, q = make_vector(i), make_vector(i + 1)
  local r = p + q
  local x = (p < q and 1 or 0) + (p == q and 1 or 0)
  local text = p .. "/" .. q
  local y = r(2)
  return x + #text + y + #lengthy
end
local function w_operators(n)
  local x = 0
  for i = 1, n do x = x + operate(i) end
  return x
end

-- varargs
local function total(...)
  local sum = 0
  for i = 1, select("#", ...) do sum = sum + (select(i, ...)) end
  return sum
end
local function pass(...)
  local sum = total(...)
  return sum, ...
end
local function w_varargs(n)
  local x = 0
  for i = 1, n do x = x + pass(i, 2, 3, 4, 5, 6, 7) end
  return x
end

-- tail calls
local is_odd
local function is_even(n)
  if n == 0 then return true end
  return is_odd(n - 1)
end
function is_odd(n)
  if n == 0 then return false end
  return is_even(n - 1)
end
local function w_tailcalls(n)
  local x = 0
  for i = 1, n do
    local even = is_even(i % 30)
    if even then x = x + 1 end
  end
  return x
end

-- helper routines of the VM: floor, ceil, modulo, power
local function w_helpers(n)
  local x = 0.5
  for i = 1, n do
    x = x + floor(x * 1.25 - i) - ceil(x * 0.75 - i) + (x * 1.7) % 97.5 + (i % 13) ^ 2.5 + fmod(i, 7)
    if x > 1e9 or x < -1e9 then x = 0.5 end
  end
  return x
end

-- methods of a class with inheritance
local Shape = {}
Shape.__index = Shape
function Shape.new(size) return setmetatable({ size = size }, Shape) end
function Shape:area() return self.size * self.size end
function Shape:grow(by)
  self.size = self.size + by
  return self
end
local Square = setmetatable({}, { __index = Shape })
Square.__index = Square
function Square.new(size) return setmetatable({ size = size }, Square) end
function Square:double()
  local area = self:area()
  return area * 2
end
local function w_objects(n)
  local x = 0
  for i = 1, n do
    local s, t = Square.new(i), Shape.new(i)
    t:grow(1)
    x = x + s:double() + t:area()
  end
  return x
end

drive({
  { "w_recursion", w_recursion }, { "w_tree", w_tree }, { "w_closures", w_closures },
  { "w_strings", w_strings }, { "w_format", w_format }, { "w_gsub", w_gsub },
  { "w_gmatch", w_gmatch }, { "w_sort", w_sort }, { "w_tables", w_tables },
  { "w_wrap", w_wrap }, { "w_resume", w_resume }, { "w_pcall", w_pcall },
  { "w_index", w_index }, { "w_operators", w_operators }, { "w_varargs", w_varargs },
  { "w_tailcalls", w_tailcalls }, { "w_helpers", w_helpers }, { "w_objects", w_objects },
}, seconds)
