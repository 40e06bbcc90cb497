-- SPDX-License-Identifier: MIT
local floor, abs = math.floor, math.abs
local function clamp(v, lo, hi)
  if v < lo then
    return lo
  elseif v > hi then
    return hi
  end
  return v
end
local function lerp(a, b, t)
  return a + (b - a) * t
end
local function fade(t)
  return t * t * t * (t * (t * 6 - 15) + 10)
end
local function lattice(i)
  local x = (i * 7919) % 997
  return x / 997
end
local function noise(x)
  local i = floor(x)
  local f = fade(x - i)
  return lerp(lattice(i), lattice(i + 1), f)
end
local function fractal(x)
  local sum, amp = 0, 1
  for octave = 1, 4 do
    sum = sum + noise(x * octave) * amp
    amp = amp * 0.5
  end
  return clamp(sum, 0, 1.5)
end
local x = 0
while true do
  local total = 0
  for _ = 1, 500 do
    x = (x + 0.37) % 1000
    total = total + abs(fractal(x) - 0.5)
  end
end
