-- SPDX-License-Identifier: MIT
local Shape = {}
Shape.__index = Shape
function Shape.new(w, h)
  return setmetatable({ w = w, h = h }, Shape)
end
function Shape:area()
  return self.w * self.h
end
function Shape:scale(f)
  self.w = self.w * f
  self.h = self.h * f
  return self
end
local Square = setmetatable({}, { __index = Shape })
Square.__index = Square
function Square.new(a)
  local s = Shape.new(a, a)
  return setmetatable(s, Square)
end
function Square:side()
  return self.w
end
local shapes = {}
for i = 1, 20 do
  shapes[i] = i % 2 == 0 and Square.new(i) or Shape.new(i, i + 1)
end
local function total()
  local sum = 0
  for i = 1, #shapes do
    local s = shapes[i]
    sum = sum + s:area()
    s:scale(1.1)
    s:scale(1 / 1.1)
  end
  return sum
end
while true do
  for i = 1, 1000 do
    total()
  end
end
