-- SPDX-License-Identifier: MIT
local select = select
local function pack2(...)
  local a, b = ...
  return a, b
end
local function sum(...)
  local s = 0
  for i = 1, select("#", ...) do
    local v = select(i, ...)
    s = s + v
  end
  return s
end
local function forward(f, ...)
  return f(...)
end
local function last(...)
  local n = select("#", ...)
  return (select(n, ...))
end
while true do
  local x = 0
  for i = 1, 200 do
    local a, b = pack2(i, i + 1, 3)
    x = x + a - b
    x = x + sum(1, i, 3, 4)
    x = x + forward(last, i, 7, 9)
  end
end
