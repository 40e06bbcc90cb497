-- SPDX-License-Identifier: MIT
-- Prints what the VM itself says of its traces: how many were started, stopped, aborted; how often all were flushed.
local n = {start = 0, stop = 0, abort = 0, flush = 0}
jit.attach(function(what) n[what] = n[what] + 1 end, "trace")
local function loop(m)
	local s = 0
	for i = 1, m do s = s + i % 3 end
	return s
end
local function refused(m)
	for i = 1, m do
		local f = function() return i end
		f()
	end
end
loop(200)
refused(300)
collectgarbage()
collectgarbage()
for _ = 1, 7 do pcall(error, "thrown") end
jit.flush()
loop(200)
jit.attach(function() end)
print(n.start, n.stop, n.abort, n.flush)
