-- SPDX-License-Identifier: MIT
local byte, min = string.byte, math.min
local function cost(a, b)
  if a == b then
    return 0
  end
  return 1
end
local function best(x, y, z)
  local m = min(x, y)
  return min(m, z)
end
local function distance(s, t, prev, cur)
  local m, n = #s, #t
  for j = 0, n do
    prev[j] = j
  end
  for i = 1, m do
    cur[0] = i
    local c = byte(s, i)
    for j = 1, n do
      cur[j] = best(prev[j] + 1, cur[j - 1] + 1, prev[j - 1] + cost(c, byte(t, j)))
    end
    prev, cur = cur, prev
  end
  return prev[n]
end
local p, q = {}, {}
while true do
  distance("profilers look into programs", "programs look back at profilers", p, q)
end
