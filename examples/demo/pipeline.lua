-- SPDX-License-Identifier: MIT
-- Coroutines that feed each other, and errors that are thrown and caught on the way.

local M = {}

local function source(n, count)
	return coroutine.wrap(function()
		for i = 1, count do
			coroutine.yield((i * 7919 + n) % 1000)
		end
	end)
end

local function digits(value)
	local sum = 0
	while value > 0 do
		sum = sum + value % 10
		value = math.floor(value / 10)
	end
	return sum
end

local function check(value)
	if value % 97 == 0 then
		error({value = value})
	end
	return digits(value)
end

-- Passes on what can be checked; a value that cannot is counted and left out.
local function filter(input, refused)
	return coroutine.wrap(function()
		for value in input do
			local ok, result = pcall(check, value)
			if ok then
				coroutine.yield(result)
			else
				refused[#refused + 1] = result.value
			end
		end
	end)
end

local function fold(input)
	local sum = 0
	for value in input do
		sum = (sum * 31 + value) % 1000003
	end
	return sum
end

function M.run(n)
	local refused = {}
	local sum = fold(filter(source(n, 8000), refused))
	return sum, #refused
end

return M
