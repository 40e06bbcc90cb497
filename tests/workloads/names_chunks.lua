-- Chunks with all kinds of names, stripped bytecode, functions of many lines.
-- Prints for each function "file TAB first line TAB position TAB line" as
-- LuaJIT itself sees it, then "ready"; lives until its standard input ends.

local util = require("jit.util")
local body = "local function work() return 1 end\nreturn work"
local long = ("d/"):rep(4000)
local names = {
	"@plain/file.lua", "=short", body, "@", "=", "@" .. long .. "one.lua",
	"@" .. long .. "two.lua", "=" .. ("n"):rep(300) .. "1", "=" .. ("n"):rep(300) .. "2",
	"@with space;semi\tand tab.lua", "=line one\nline two", "@/abs/path/./../x.lua", "no prefix",
	"local first = 1 -- a source that is longer than its label may be: one",
	"local first = 1 -- a source that is longer than its label may be: two",
	"@" .. ("x"):rep(70000) .. "end", "",
}
kept = {}
for i, name in ipairs(names) do kept[i] = assert(loadstring(body, name))() end

-- 1, 2 and 4 bytes of line information.
for _, lines in ipairs({ 0, 1, 254, 255, 256, 300, 65534, 65535, 65536, 70000, 200000 }) do
	local source = "return function()" .. ("\n"):rep(lines) .. "local x = 1" .. "\n" ..
		"return x end"
	local f = assert(loadstring(("\n"):rep(lines % 7) .. source, "=lines" .. lines))()
	kept[#kept + 1] = f
	for pc = 0, util.funcinfo(f).bytecodes - 1 do
		local info = util.funcinfo(f, pc)
		print("lines" .. lines, info.linedefined, pc, info.currentline)
	end
end

-- Stripped: no lines, no locals, but fields and globals have names.
local stripped = [[
local function a_local() return 1 end
function global() return a_local() end
local M = { member = function(...) return 3 end }
return function() return a_local end, M
]]
kept.stripped = { loadstring(string.dump(loadstring(stripped), true), "=stripped")() }

io.stdout:write("ready\n")
io.stdout:flush()
io.stdin:read("*l")
