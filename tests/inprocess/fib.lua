-- SPDX-License-Identifier: MIT
-- A program that profiles itself, as the manual of Tarantool's profiler shows it. fib.lua FILE MODE jit|nojit
local misc = require "moonspy.misc"

local function payload()
  local function fib(n)
    if n <= 1 then
      return n
    end
    return fib(n - 1) + fib(n - 2)
  end
  return fib(32)
end

if arg[3] == "nojit" then
  jit.off()
end
assert(misc.sysprof.start {mode = arg[2], interval = 1, path = arg[1]})
for _ = 1, 4 do
  payload()
end
assert(misc.sysprof.stop())
local counters = misc.sysprof.report()
assert(counters.samples > 0)
print(counters.samples, counters.vmstate.LFUNC, counters.vmstate.TRACE)
