-- SPDX-License-Identifier: MIT
local function less(a, b)
  return a < b
end
local function swap(t, i, j)
  local x = t[i]
  t[i] = t[j]
  t[j] = x
end
local function partition(t, lo, hi)
  local pivot = t[hi]
  local i = lo
  for j = lo, hi - 1 do
    if less(t[j], pivot) then
      swap(t, i, j)
      i = i + 1
    end
  end
  swap(t, i, hi)
  return i
end
local function quick(t, lo, hi)
  if lo < hi then
    local p = partition(t, lo, hi)
    quick(t, lo, p - 1)
    quick(t, p + 1, hi)
  end
end
local seed = 42
local function random()
  seed = (seed * 1103515245 + 12345) % 2147483648
  return seed
end
local t = {}
while true do
  for i = 1, 300 do
    t[i] = random() % 1000
  end
  quick(t, 1, 300)
end
