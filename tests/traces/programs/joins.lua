-- SPDX-License-Identifier: MIT
-- Traces that are joined in other ways: behind a call that is not compiled (gsub), through recursion up and down,
-- with steps of the collector inside, and over side traces.
local gsub = string.gsub
local function weigh(x)
  if x % 3 == 0 then
    return x * 2
  end
  return x + 1
end
local function stitched(n)
  local s = 0
  for i = 1, n do
    local t = gsub("abc", "b", "d")
    s = s + weigh(i) + #t
  end
  return s
end
local function down(n)
  if n == 0 then
    return 1
  end
  return weigh(n) + down(n - 1)
end
local function garbage(n)
  local last
  for i = 1, n do
    last = { weigh(i), { i } }
  end
  return last[1]
end
while true do
  local s = stitched(50)
  s = s + down(80)
  s = s + garbage(200)
end
