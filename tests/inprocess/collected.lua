-- SPDX-License-Identifier: MIT
-- Functions that are sampled ten times each, then collected, with their traces. collected.lua FILE jit|nojit COUNT
if arg[2] == "nojit" then
  jit.off()
end
local sysprof = require "moonspy.sysprof"

local function samples()
  return sysprof.report().samples
end

assert(sysprof.start {mode = "C", interval = 1, path = arg[1]})
for i = 1, tonumber(arg[3]) do
  -- each on a line of its own: they have the same address, one after the other
  local text = ("\n"):rep(i) .. ([[
    local samples = ...
    local function short%d()
      local last, x = samples() + 10, 0
      repeat
        for i = 1, 1000 do x = x + i %% 7 end
      until samples() >= last
    end
    short%d()
  ]]):format(i, i)
  assert(loadstring(text, "=collected"))(samples)
  jit.flush()
  collectgarbage()
  collectgarbage()
end
assert(sysprof.stop())
