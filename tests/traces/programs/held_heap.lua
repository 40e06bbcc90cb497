-- SPDX-License-Identifier: MIT
local Heap = {}
Heap.__index = Heap
local function parent(i)
  return (i - i % 2) / 2
end
function Heap:before(i, j)
  return self[i].key < self[j].key
end
function Heap:swap(i, j)
  self[i], self[j] = self[j], self[i]
end
function Heap:push(key)
  local i = #self + 1
  self[i] = { key = key }
  while i > 1 and self:before(i, parent(i)) do
    self:swap(i, parent(i))
    i = parent(i)
  end
end
function Heap:pop()
  local top, n = self[1], #self
  self[1] = self[n]
  self[n] = nil
  n = n - 1
  local i = 1
  while true do
    local c = 2 * i
    if c > n then
      break
    end
    if c < n and self:before(c + 1, c) then
      c = c + 1
    end
    if not self:before(c, i) then
      break
    end
    self:swap(i, c)
    i = c
  end
  return top.key
end
local seed = 7
while true do
  local h = setmetatable({}, Heap)
  for _ = 1, 100 do
    seed = (seed * 16807) % 2147483647
    h:push(seed % 1000)
  end
  local last = -1
  while #h > 0 do
    local k = h:pop()
    assert(k >= last)
    last = k
  end
end
