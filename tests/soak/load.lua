-- SPDX-License-Identifier: MIT
-- usage: load.lua SECONDS: what makes a profiler grow, over and over, from a finite set: functions
-- loaded and collected, traces flushed, libraries opened and closed. Busy for about a fifth of the time.
-- Few functions: all stacks that they make are seen in the first quarter of an hour, the rest is to be steady.
local ffi = require("ffi")
ffi.cdef[[
int poll(void *fds, unsigned long n, int ms);
void *dlopen(const char *name, int flags);
int dlclose(void *handle);
]]

local CHUNKS, FUNCTIONS = 12, 3
local libraries = {"libm.so.6", "libanl.so.1", "libutil.so.1", "librt.so.1", "libresolv.so.2",
	"libz.so.1", "liblzma.so.5", "libzstd.so.1", "libelf.so.1", "libdw.so.1"}

local function source(number)
	local text = {}
	for i = 1, FUNCTIONS do
		text[#text + 1] = ("local function work_%d(n) local x = 0 for i = 1, n do x = x + i %% %d end return x end")
			:format(i, number + i)
	end
	text[#text + 1] = "local sum = 0"
	for i = 1, FUNCTIONS do
		text[#text + 1] = ("sum = sum + work_%d(20000)"):format(i)
	end
	text[#text + 1] = "return sum"
	return table.concat(text, "\n")
end

local function load_and_run(number)
	return assert(loadstring(source(number), ("@chunk_%d.lua"):format(number)))()
end

local function open_and_close(number)
	local handle = ffi.C.dlopen(libraries[number % #libraries + 1], 2)
	if handle ~= nil then
		ffi.C.dlclose(handle)
	end
end

local stop = os.time() + tonumber(arg[1])
local turn = 0
while os.time() < stop do
	turn = turn + 1
	for i = 1, 4 do
		load_and_run((4 * turn + i) % CHUNKS)
	end
	open_and_close(turn)
	if turn % 2 == 0 then
		jit.flush()
	end
	ffi.C.poll(nil, 0, 10)
end
