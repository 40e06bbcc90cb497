-- SPDX-License-Identifier: MIT
local even, odd
function even(n, acc)
  if n == 0 then
    return acc
  end
  return odd(n - 1, acc + 1)
end
function odd(n, acc)
  if n == 0 then
    return acc
  end
  return even(n - 1, acc + 2)
end
local function loop(n, a, b)
  if n == 0 then
    return a
  end
  return loop(n - 1, b, (a + b) % 1009)
end
local function run(k)
  local x = even(k, 0)
  return x + loop(k, 1, 1)
end
while true do
  run(150)
end
