-- SPDX-License-Identifier: MIT
-- usage: luajit traces.lua SECONDS [jit|nojit]
-- What the JIT compiler makes: root and side traces with different stack needs, up- and
-- down-recursion, stitching, helpers called from traces, exits all the time, aborted
-- recordings and blacklisted loops, inlined chains, flushes of everything while running.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local function leaf_a(x)
  x = x * 1.0000001 + 0.5
  x = (x * x + 1) / (x + 2)
  return (x * x + 3) / (x + 4)
end
local function leaf_b(x) return x * 0.5 + 1 end
local function middle(x)
  local a = leaf_a(x)
  local b = leaf_b(a)
  return a + b
end
local function w_inlined(n)
  local x = 1
  for i = 1, n do x = x * 0.1 + middle(i % 50) end
  return x
end

local function side_many(i, a, b, c, d, e, f, g, h)
  local s = a * b + c * d + e * f + g * h
  local t = (a + b) * (c + d) - (e + f) * (g + h)
  return s * 0.001 + t * 0.002 + i
end
local function w_side(n)
  local x, y = 0, 0
  for i = 1, n do
    if i % 2 == 0 then
      x = x + 1
    elseif i % 3 == 0 then
      x = x + side_many(i, x, y, i, 1, 2, 3, 4, 5) % 7
    elseif i % 5 == 0 then
      y = y + side_many(i, 1, 2, 3, 4, 5, 6, 7, 8) % 11
    else
      y = y - 1
    end
    if x > 1e6 then x = 0 end
    if y > 1e6 then y = 0 end
  end
  return x + y
end

local function up(n)
  if n > 0 then return 1 + up(n - 1) end
  return 0
end
local function w_up(n)
  local x = 0
  for _ = 1, n do x = x + up(150) end
  return x
end
local function tree(d)
  if d == 0 then return 1 end
  return tree(d - 1) + 1 + tree(d - 1)
end
local function w_down(n)
  local x = 0
  for _ = 1, n do x = x + tree(8) end
  return x
end

-- os.time is not compiled: the trace is stitched around it.
local time = os.time
local function stitched(i)
  local x = i * 3 % 17
  local t = time()
  local y = (x + t % 2) * 5 % 19
  return y
end
local function w_stitch(n)
  local x = 0
  for i = 1, n do x = x + stitched(i) end
  return x
end

-- Types change all the time: the guards fail and the exits stay hot.
local function mixed_type(v)
  if type(v) == "string" then return #v end
  if type(v) == "table" then return v[1] end
  return v and 1 or 0
end
local values = { "text", { 3 }, true, false, "more", { 5 }, 7 }
local function w_exits(n)
  local x = 0
  for i = 1, n do x = x + mixed_type(values[i % #values + 1]) end
  return x
end

-- Closures made in a loop are not compiled: recording aborts until the loop is blacklisted.
local function w_blacklisted(n)
  local x = 0
  for i = 1, n do
    local function add(y) return y + i end
    x = add(x) % 1000
  end
  return x
end

local function w_helpers(n)
  local x = 1.5
  for i = 1, n do x = (x * 1.1 + i) % 97.25 + i % 7 + (i % 11) ^ 1.5 + math.floor(x) end
  return x
end

local function allocate(i) return { i, i + 1 } end
local function w_allocate(n)
  local x, kept = 0, {}
  for i = 1, n do
    local t = allocate(i)
    kept[i % 64] = t
    x = x + t[2]
  end
  return x
end

-- New code becomes hot, is compiled, and everything is flushed.
local function make(id)
  local source = "local function hot(n) local x = " .. id .. " for i = 1, n do x = (x * 3 + i) % " ..
    id % 90 + 2 .. " end return x end return hot"
  local chunk = loadstring(source, "=hot")
  return (chunk())
end
local generation = 0
local function w_flush(n)
  local x = 0
  for i = 1, n do
    generation = generation + 1
    local hot = make(generation)
    x = x + hot(500)
    if i % 8 == 0 and jit then jit.flush() end
  end
  return x
end

drive({
  { "w_inlined", w_inlined }, { "w_side", w_side }, { "w_up", w_up }, { "w_down", w_down },
  { "w_stitch", w_stitch }, { "w_exits", w_exits }, { "w_blacklisted", w_blacklisted },
  { "w_helpers", w_helpers }, { "w_allocate", w_allocate }, { "w_flush", w_flush },
}, seconds)
