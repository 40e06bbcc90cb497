-- SPDX-License-Identifier: MIT
-- Flushed all the time: numbers and addresses of traces are used again and again for others.
local function leaf_a(x)
  if x > 1e9 then
    return 1
  end
  return x + 1
end
local function leaf_b(x)
  if x > 1e9 then
    return 2
  end
  return x - 1
end
local function leaf_c(x)
  if x > 1e9 then
    return 3
  end
  return x * 1
end
local leaves = { leaf_a, leaf_b, leaf_c }
-- The same functions around them each time: only what is inlined tells the traces apart.
local function middle(f, g, x)
  if x > 1e9 then
    return 4
  end
  return g(f(x))
end
local function loop(f, g, n)
  local s = 0
  for i = 1, n do
    s = s + middle(f, g, i)
  end
  return s
end
local round = 0
while true do
  round = round + 1
  loop(leaves[round % 3 + 1], leaves[(round + 1) % 3 + 1], 3000000)
  jit.flush()
end
