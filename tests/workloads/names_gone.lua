-- Functions whose main chunk was collected, as of every module some time after
-- require: no definition is left, only the functions themselves.
-- Prints "ready", then lives until its standard input ends.

local source = [[
local M = {}
local function helper() return 1 end
local function tail_target() return 2 end
local function never_found() return 3 end
function M.visible() return helper() + 0 end
function M.jump() return tail_target() end
function M:method() return self end
M.one, M.two = never_found, never_found
local function caller(argument)
	local r = M.visible() + M.jump() + helper()
	r = r + (argument or helper)() + argument() -- no one name
	M:method()
	local alias = M.visible
	r = r + alias() + math.floor(r) + global_function()
	for _ in argument do r = r + 1 end
	return r
end
function global_function() return 4 end
local function by_size(a, b) return a > b end
local function through(list)
	local first, second = unpack(list)
	local r = first() + (r and first or second)()
	do local slot = list[1] r = r + slot() end
	do local reused = list[2] r = r + reused() end
	for _, each in ipairs(list) do r = r + each() end
	table.sort(list, by_size)
	return r
end
M.caller, M.through = caller, through
return M
]]

local M = loadstring(source, "@gone.lua")()
source = nil
for round = 1, 4 do
	collectgarbage()
	-- Its memory is used again, so that not even its remains are found.
	local junk = {}
	for i = 1, 20000 do
		junk[i] = ("junk"):rep(i % 200) .. i
		junk[-i] = { i }
	end
end
collectgarbage()
keep = M
io.stdout:write("ready\n")
io.stdout:flush()
io.stdin:read("*l")
