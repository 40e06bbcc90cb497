-- SPDX-License-Identifier: MIT
local function clear(t, n)
  for i = 2, n do
    t[i] = true
  end
end
local function strike(t, p, n)
  for k = p * p, n, p do
    t[k] = false
  end
end
local function is_prime(t, i)
  return t[i]
end
local function sieve(t, n)
  clear(t, n)
  local count = 0
  for i = 2, n do
    if is_prime(t, i) then
      count = count + 1
      if i * i <= n then
        strike(t, i, n)
      end
    end
  end
  return count
end
local t = {}
while true do
  sieve(t, 2000)
end
