-- SPDX-License-Identifier: MIT
local function counter(step)
  local n = 0
  return function()
    n = n + step
    return n
  end
end
local function compose(f, g)
  return function(x)
    return f(g(x))
  end
end
local function map(t, f, out)
  for i = 1, #t do
    out[i] = f(t[i])
  end
  return out
end
local function fold(t, f, x)
  for i = 1, #t do
    x = f(x, t[i])
  end
  return x
end
local data, out = {}, {}
for i = 1, 100 do
  data[i] = i
end
local add = function(a, b)
  return a + b
end
local twice = function(x)
  return x * 2
end
local inc = function(x)
  return x + 1
end
local both = compose(twice, inc)
local next_id = counter(3)
while true do
  for _ = 1, 50 do
    local s = fold(map(data, both, out), add, 0)
    if s > 1 then
      next_id()
    end
  end
end
