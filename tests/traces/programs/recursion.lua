-- SPDX-License-Identifier: MIT
local function fib(n)
  if n < 2 then
    return n
  end
  return fib(n - 1) + fib(n - 2)
end
local function build(d)
  if d == 0 then
    return { value = 1 }
  end
  local left = build(d - 1)
  local right = build(d - 1)
  return { left, right, value = d }
end
local function sum(t)
  local s = t.value
  if t[1] then
    s = s + sum(t[1])
    s = s + sum(t[2])
  end
  return s
end
local function count(n)
  if n == 0 then
    return 0
  end
  return 1 + count(n - 1)
end
local tree = build(8)
while true do
  fib(14)
  sum(tree)
  count(120)
end
