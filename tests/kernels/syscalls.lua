-- SPDX-License-Identifier: MIT
-- usage: luajit syscalls.lua SECONDS [jit|nojit]
-- Most of its time is in the kernel: each os.clock() is a system call.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local clock = os.clock
local function ask(n)
  local x = 0
  for _ = 1, n do
    local now = clock()
    x = x + now
  end
  return x
end
drive({ { "ask", ask } }, seconds)
