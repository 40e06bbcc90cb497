-- SPDX-License-Identifier: MIT
local function square(x)
  return x * x
end
local function norm(x, y)
  local s = square(x)
  s = s + square(y)
  return s
end
local function step(x, y, cx, cy)
  local nx = square(x) - square(y) + cx
  local ny = 2 * x * y + cy
  return nx, ny
end
local function depth(cx, cy)
  local x, y = 0, 0
  for i = 1, 60 do
    x, y = step(x, y, cx, cy)
    if norm(x, y) > 4 then
      return i
    end
  end
  return 60
end
while true do
  local total = 0
  for py = -20, 20 do
    for px = -40, 20 do
      total = total + depth(px / 20, py / 20)
    end
  end
end
