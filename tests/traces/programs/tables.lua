-- SPDX-License-Identifier: MIT
local insert, remove = table.insert, table.remove
local function push(q, v)
  q.last = q.last + 1
  q[q.last] = v
end
local function pop(q)
  local v = q[q.first]
  q[q.first] = nil
  q.first = q.first + 1
  return v
end
local function fill(n)
  local q = { first = 1, last = 0 }
  for i = 1, n do
    push(q, i)
  end
  return q
end
local function drain(q)
  local sum = 0
  while q.first <= q.last do
    sum = sum + pop(q)
  end
  return sum
end
local function stack(n)
  local s = {}
  for i = 1, n do
    insert(s, i * 2)
  end
  local x = 0
  while #s > 0 do
    x = x + remove(s)
  end
  return x
end
while true do
  local a = drain(fill(200)) + stack(100)
  assert(a > 0)
end
