-- SPDX-License-Identifier: MIT
-- Prints what the VM itself says of its traces, a line an event: as the probes should say it, in hexadecimal.
local util = require("jit.util")
local log = {}

local function say(...)
	local words = {...}
	for i = 2, #words do words[i] = string.format("%x", words[i]) end
	log[#log + 1] = table.concat(words, " ")
end

-- Of a trace that goes on behind a call, exit is -1 and parent the trace before it.
local function event(what, number, _, _, parent, exit)
	if what == "start" then
		if exit == -1 then parent, exit = 0, parent end
		say("event trace_start", number, parent or 0, exit or 0)
	elseif what == "stop" then
		local code, address = util.tracemc(number)
		say("event trace_stop", number, address, #code)
	elseif what == "abort" then
		say("event trace_abort", number, parent)
	else
		say("event trace_flush", 0)
	end
end

local function exited(number, exit)
	say("event trace_exit", number, exit)
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

jit.attach(event, "trace")
jit.attach(exited, "texit")
loop(400)
refused(300)
collectgarbage()
collectgarbage()
for _ = 1, 7 do pcall(error, "thrown") end
jit.flush()
loop(200)
jit.attach(exited)
jit.attach(event)
print(table.concat(log, "\n"))
