-- SPDX-License-Identifier: MIT
-- Waits for a line with a number, makes traces, aborts some and flushes in as many rounds, prints what the VM itself says
-- of that, and how much CPU time it took; and so on. The last round is not flushed.
local count = {}
local roots, is_root = 0 -- that were made and not flushed; the trace that is being made is one

local function add(key, n)
	count[key] = (count[key] or 0) + n
end

local function event(what, _, _, _, parent_or_reason, exit)
	add(what == "abort" and "abort " .. tostring(parent_or_reason) or what, 1)
	if what == "start" then
		is_root = not parent_or_reason or exit == -1 -- it goes on behind a call
	elseif what == "stop" and is_root then
		roots = roots + 1
	elseif what == "flush" then
		add("roots flushed", roots)
		roots = 0
	end
end

local function loop(m)
	local s = 0
	for i = 1, m do
		if i % 3 == 0 then s = s + i end
	end
	return s
end

local function refused(m)
	for i = 1, m do
		local f = function() return i end
		f()
	end
end

local function rounds(n)
	for _ = 1, n do
		jit.flush()
		loop(20000)
		refused(300)
	end
end
jit.off(rounds)

-- For samples: without one there is no profile.
local function spin(began)
	repeat until os.clock() - began > 0.2
end
jit.off(spin)

io.write("ready\n")
io.flush()
for line in io.lines() do
	count = {}
	jit.attach(event, "trace")
	local began = os.clock()
	rounds(tonumber(line))
	local took = os.clock() - began
	jit.attach(event)
	spin(os.clock())
	for key, n in pairs(count) do print(n, key) end
	print(took, "seconds")
	print(0, "done")
	io.flush()
end
