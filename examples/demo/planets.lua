-- SPDX-License-Identifier: MIT
-- Metamethods: vectors with +, -, * and ==, and bodies that pull at each other.

local M = {}

local Vector = {}
Vector.__index = Vector

local function vector(x, y)
	return setmetatable({x = x, y = y}, Vector)
end

function Vector.__add(a, b)
	return vector(a.x + b.x, a.y + b.y)
end

function Vector.__sub(a, b)
	return vector(a.x - b.x, a.y - b.y)
end

function Vector.__mul(v, k)
	return vector(v.x * k, v.y * k)
end

function Vector.__eq(a, b)
	return a.x == b.x and a.y == b.y
end

function Vector:length()
	return math.sqrt(self.x * self.x + self.y * self.y)
end

local function pull(body, other)
	local d = other.place - body.place
	local distance = d:length() + 0.1
	return d * (other.mass / (distance * distance * distance))
end

local function step(bodies, dt)
	for _, body in ipairs(bodies) do
		for _, other in ipairs(bodies) do
			if body ~= other then
				body.speed = body.speed + pull(body, other) * dt
			end
		end
	end
	for _, body in ipairs(bodies) do
		body.place = body.place + body.speed * dt
	end
end

function M.run()
	local bodies = {}
	for i = 1, 5 do
		bodies[i] = {place = vector(i, i % 3), speed = vector(0, 1 / i), mass = 6 - i}
	end
	for _ = 1, 400 do
		step(bodies, 0.001)
	end
	assert(bodies[1].place ~= vector(1, 1))
end

return M
