-- SPDX-License-Identifier: MIT
-- usage: luajit late.lua SECONDS [jit|nojit]
-- One protected call at the start, then a loop that never enters the VM again. A tool
-- that attaches after "attach now" must find the VM without any event.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local function endless(limit)
  local x, i = 0, 0
  while i < limit do
    i = i + 1
    x = (x + i % 7) % 1000003
  end
  return x
end
local function bottom(limit)
  local x = endless(limit)
  return x + 1
end
local function top(limit)
  local x = bottom(limit)
  return x + 1
end
local before = os.clock()
top(5e7)
local rate = 5e7 / (os.clock() - before)
io.stdout:write("attach now\n")
io.stdout:flush()
pcall(top, rate * seconds)
drive({}, 0)
