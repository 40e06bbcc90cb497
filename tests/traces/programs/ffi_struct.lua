-- SPDX-License-Identifier: MIT
local ffi = require("ffi")
ffi.cdef("typedef struct { double x, y, z; } vec3;")
local vec
local function dot(a, b)
  return a.x * b.x + a.y * b.y + a.z * b.z
end
local function cross(a, b)
  return vec(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x)
end
vec = ffi.metatype("vec3", {
  __add = function(a, b)
    return vec(a.x + b.x, a.y + b.y, a.z + b.z)
  end,
  __mul = function(a, s)
    return vec(a.x * s, a.y * s, a.z * s)
  end,
  __index = {
    length2 = function(a)
      return dot(a, a)
    end,
  },
})
local points = ffi.new("vec3[64]")
for i = 0, 63 do
  points[i].x, points[i].y, points[i].z = i, i * 2, i * 3
end
local function pass()
  local sum = vec(0, 0, 0)
  for i = 0, 62 do
    local c = cross(points[i], points[i + 1])
    sum = sum + c * 0.5
  end
  return sum:length2()
end
while true do
  pass()
end
