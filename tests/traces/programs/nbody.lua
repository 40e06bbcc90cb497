-- SPDX-License-Identifier: MIT
local sqrt = math.sqrt
local bodies = {}
for i = 1, 5 do
  bodies[i] = { x = i, y = i * 2, z = i * 3, vx = 0, vy = 0, vz = 0, mass = 1 / i }
end
local function distance(a, b)
  local dx, dy, dz = a.x - b.x, a.y - b.y, a.z - b.z
  local d2 = dx * dx + dy * dy + dz * dz + 0.01
  return dx, dy, dz, d2
end
local function pull(a, b, dt)
  local dx, dy, dz, d2 = distance(a, b)
  local mag = dt / (d2 * sqrt(d2))
  local am, bm = a.mass * mag, b.mass * mag
  a.vx = a.vx - dx * bm
  a.vy = a.vy - dy * bm
  a.vz = a.vz - dz * bm
  b.vx = b.vx + dx * am
  b.vy = b.vy + dy * am
  b.vz = b.vz + dz * am
end
local function move(b, dt)
  b.x = b.x + dt * b.vx
  b.y = b.y + dt * b.vy
  b.z = b.z + dt * b.vz
end
local function advance(dt)
  local n = #bodies
  for i = 1, n do
    for j = i + 1, n do
      pull(bodies[i], bodies[j], dt)
    end
  end
  for i = 1, n do
    move(bodies[i], dt)
  end
end
while true do
  advance(0.001)
end
