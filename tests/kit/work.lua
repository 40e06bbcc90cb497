-- SPDX-License-Identifier: MIT
-- What the helpers are held against: which function may be called from which, by the lines they are defined in.
-- Tail calls replace their caller.
-- graph: 0>10 0>14 0>19 0>26 0>33 0>41 0>52 14>10 19>19 19>14 26>14 26>29 26>10 33>10 33>14 41>14 47>14 47>10 52>14
local rounds = tonumber((...)) or 100
local sink = {}



local function leaf(x)
	return x * 3 % 7 + (sink[x % 8] or 0)
end

local function middle(x)
	local y = leaf(x) + leaf(x + 1)
	return y - x
end

local function recursive(n)
	if n == 0 then
		return middle(n)
	end
	return recursive(n - 1) + middle(n)
end

local function sorted(n)
	local t = {}
	for i = 1, n do t[i] = middle(i) end
	table.sort(t, function(a, b) return a < b end)
	return leaf(t[1])
end

local function varargs(...)
	local n = 0
	for i = 1, select("#", ...) do
		n = n + leaf((select(i, ...))) + middle(i)
	end
	return n
end

local function text(n)
	local s = ""
	for i = 1, n do s = s .. tostring(i % 10) .. middle(i) end
	return #s:gsub("%d", "x")
end

local function yields(n)
	for i = 1, n do coroutine.yield(middle(i) + leaf(i)) end
end


local function throws(n)
	if middle(n) then error({n}) end
end

for round = 1, rounds do
	local n = 0
	for i = 1, 200 do n = n + middle(i) end
	n = n + recursive(30) + sorted(40) + varargs(1, 2, 3, 4, 5) + text(20)
	local co = coroutine.wrap(yields)
	for i = 1, 10 do n = n + co(10) end
	for i = 1, 5 do pcall(throws, i) end
	if round % 16 == 0 then collectgarbage("step", 50) end
	if round % 64 == 0 and jit then jit.flush() end
	sink[round % 8] = n % 5
end
