-- What a compiler does with these, line by line, stands in traces.py.
local f, s = nil, 0
for i = 1, 1e6 do f = function() return i end end
local function tried(n)
	for i = 1, n do f = function() return i end end
end
tried(300)
local function off(n)
	for i = 1, n do s = s + i end
end
jit.off(off)
off(300)
local function leaf(x)
	return x * 2
end
local function hot(n)
	for i = 1, n do
		if i % 3 == 0 then
			s = s + leaf(i)
		else
			s = s + 1
		end
	end
end
hot(1000)
io.write("ready\n")
io.flush()
while true do hot(1000) end
