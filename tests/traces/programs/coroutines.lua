-- SPDX-License-Identifier: MIT
local yield, wrap = coroutine.yield, coroutine.wrap
local function mix(a, b)
  local x = a * 7 + b
  return x % 1001
end
local function work(n)
  local x = 1
  for i = 1, n do
    x = mix(x, i)
  end
  return x
end
local function producer()
  return wrap(function()
    for i = 1, 1e9 do
      local v = work(40)
      yield(v + i)
    end
  end)
end
local function consumer(next_value)
  local s = 0
  for _ = 1, 30 do
    s = mix(s, next_value())
    s = s + work(30)
  end
  return s
end
local p = producer()
while true do
  consumer(p)
end
