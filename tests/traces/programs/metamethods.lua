-- SPDX-License-Identifier: MIT
local V = {}
V.__index = function(t, k)
  return rawget(t, k == "len" and "x" or "y") or 1
end
local function new(x, y)
  return setmetatable({ x = x, y = y }, V)
end
V.__add = function(a, b)
  return new(a.x + b.x, a.y + b.y)
end
V.__eq = function(a, b)
  return a.x == b.x
end
V.__lt = function(a, b)
  local d = a.x - b.x
  return d < 0
end
V.__call = function(self, k)
  return self.x * k
end
V.__concat = function(a, b)
  return a.x + b.x
end
local a, b = new(1, 2), new(3, 4)
while true do
  local n = 0
  for i = 1, 300 do
    local c = a + b
    if c == a then
      n = n + 1
    end
    if a < c then
      n = n + c(i)
    end
    n = n + c.len + (a .. b)
  end
end
