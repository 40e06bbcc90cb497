-- SPDX-License-Identifier: MIT
local ffi = require("ffi")
ffi.cdef("int abs(int); size_t strlen(const char *); double sqrt(double);")
local C = ffi.C
local buf = ffi.new("uint8_t[256]")
local function fill(seed)
  for i = 0, 254 do
    buf[i] = (seed + i) % 255 + 1
  end
  buf[255] = 0
end
local function measure()
  return tonumber(C.strlen(ffi.cast("const char *", buf)))
end
local function distance(a, b)
  local d = C.abs(a - b)
  return d * 2
end
local function sum(n)
  local s = 0
  for i = 1, n do
    s = s + distance(i, n - i)
    s = s + measure() % 3
  end
  return s
end
local seed = 0
while true do
  seed = seed + 1
  fill(seed)
  sum(100)
end
