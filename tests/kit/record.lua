-- SPDX-License-Identifier: MIT
-- Waits for a line with a number, makes traces, aborts some and flushes in as many rounds, prints what the VM itself says
-- of that, and how much CPU time it took; and so on. The last round is not flushed.
local count = {}

local function event(what, number, _, _, reason)
	local key = what == "abort" and "abort " .. tostring(reason) or what
	count[key] = (count[key] or 0) + 1
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
