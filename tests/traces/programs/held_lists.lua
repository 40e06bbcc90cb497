-- SPDX-License-Identifier: MIT
local function cons(head, tail)
  return { head, tail }
end
local function range(n)
  local l
  for i = n, 1, -1 do
    l = cons(i, l)
  end
  return l
end
local function each(l)
  return function(_, node)
    if node == nil then
      return l
    end
    return node[2]
  end
end
local function sum(l)
  local s = 0
  for node in each(l) do
    s = s + node[1]
  end
  return s
end
local function reverse(l)
  local r
  while l do
    r = cons(l[1], r)
    l = l[2]
  end
  return r
end
while true do
  local l = range(80)
  sum(reverse(l))
end
