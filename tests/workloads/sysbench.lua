-- SPDX-License-Identifier: MIT
-- A script for sysbench: events are work in Lua.
local function primes(limit)
  local sieve, count = {}, 0
  for i = 2, limit do
    if not sieve[i] then
      count = count + 1
      for k = i * i, limit, i do sieve[k] = true end
    end
  end
  return count
end
local function descending(a, b) return a > b end
local function sorted(n)
  local list = {}
  for i = 1, n do list[i] = (i * 7919) % 1009 end
  table.sort(list, descending)
  return list[1]
end
function event(thread)
  local x = primes(2000 + thread)
  local y = sorted(300)
  if x + y < 0 then error("impossible") end
end
