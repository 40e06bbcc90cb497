-- SPDX-License-Identifier: MIT
-- The compiler makes an addition of the division, and none of the second sum.
local function sum(a, b)
  return a + b
end
local function halves(x, y)
  local once = sum(x, y)
  local twice = x / 0.5
  local again = sum(x, y)
  return once - twice - again
end
while true do
  local total = 0
  for i = 1, 100000 do
    total = total - halves(total, i)
  end
end
