-- SPDX-License-Identifier: MIT
-- usage: luajit syscalls.lua SECONDS [jit|nojit]
-- Most of its time is in the kernel: each os.clock() is a system call.
local limit = tonumber(arg[1])
if arg[2] == "nojit" then jit.off() end

local clock = os.clock
local function ask(n)
  local now
  for _ = 1, n do now = clock() end
  return now
end
local function run()
  repeat
    local now = ask(1000)
  until now >= limit
end
run()
