-- SPDX-License-Identifier: MIT
-- Recursion and closures: queens on a board, and change for a sum.

local M = {}

-- Places queens row by row; free(row, column) is a closure over the queens placed so far.
local function place(size, row, columns, free)
	if row > size then
		return 1
	end
	local found = 0
	for column = 1, size do
		if free(row, column) then
			columns[row] = column
			found = found + place(size, row + 1, columns, free)
		end
	end
	return found
end

function M.queens(size)
	local columns = {}
	local function free(row, column)
		for r = 1, row - 1 do
			local c = columns[r]
			if c == column or c - r == column - row or c + r == column + row then
				return false
			end
		end
		return true
	end
	return place(size, 1, columns, free)
end

-- In how many ways do coins make an amount? A counter that remembers is made for each set.
local function make_counter(coins)
	local known = {}
	local function count(amount, largest)
		if amount == 0 then
			return 1
		elseif amount < 0 or largest == 0 then
			return 0
		end
		local key = amount * 100 + largest
		local ways = known[key]
		if not ways then
			ways = count(amount, largest - 1) + count(amount - coins[largest], largest)
			known[key] = ways
		end
		return ways
	end
	return function(amount)
		return count(amount, #coins)
	end
end

function M.run()
	assert(M.queens(7) == 40)
	assert(make_counter({1, 2, 5, 10, 20, 50, 100, 200})(200) == 73682)
end

return M
