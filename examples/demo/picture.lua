-- SPDX-License-Identifier: MIT
-- A hot numeric loop that the JIT compiler likes: an escape-time fractal.

local M = {}

local function escape_time(cr, ci, limit)
	local r, i = 0, 0
	for n = 1, limit do
		local rr, ii = r * r, i * i
		if rr + ii > 4 then
			return n
		end
		i = 2 * r * i + ci
		r = rr - ii + cr
	end
	return limit
end

local function draw_row(y, width, height, zoom)
	local sum = 0
	for x = 0, width - 1 do
		local cr = (x / width - 0.7) * 3 / zoom - 0.5
		local ci = (y / height - 0.5) * 2 / zoom
		sum = sum + escape_time(cr, ci, 60)
	end
	return sum
end

function M.run(n)
	local total = 0
	for y = 0, 89 do
		total = total + draw_row(y, 120, 90, 1 + n % 5)
	end
	return total
end

return M
