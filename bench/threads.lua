-- SPDX-License-Identifier: MIT
-- For sysbench, which runs event() in each of its threads: a stack of 1,000 Lua functions, then a sleep.
local ffi = require("ffi")
ffi.cdef("int usleep(unsigned int microseconds);")
local function deep(n)
  if n == 0 then
    ffi.C.usleep(20000)
    return 0
  end
  local x = deep(n - 1)
  return x + 1
end
function event()
  if deep(1000) ~= 1000 then error("impossible") end
end
