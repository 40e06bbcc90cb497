-- SPDX-License-Identifier: MIT
-- usage: tarantool tarantool.lua SECONDS [jit|nojit]
-- Eight fibers, each with a C stack and a coroutine of its own, that take turns.
local fiber = require("fiber")
local seconds, mode = tonumber(arg[1]) or 2, arg[2]
if mode == "nojit" then jit.off() end

local function bottom(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  return x
end
local function replace(s)
  local n = bottom(500 + #s)
  local text = tostring(n)
  return text
end
local function handler(k)
  local x = bottom(1000 + k)
  local s = ("a b c"):gsub("%a", replace)
  return x + #s
end
local function worker(k)
  while true do
    for _ = 1, 20 do handler(k) end
    fiber.yield()
  end
end

for k = 1, 8 do fiber.create(worker, k) end
fiber.sleep(seconds)
os.exit(0)
