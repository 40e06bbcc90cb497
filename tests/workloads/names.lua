-- Every way to define a function. A comment "--> NAME" says what the function
-- that begins on that line is to be called; the test reads it from here.
-- Prints "ready", then lives until its standard input ends.

local function plain() return 1 end --> plain
local late
late = function() return 1 end --> late
local first, second = function() return 1 end, -- two on two lines --> first
	function() return 2 end --> second
function a_global() return 1 end --> a_global
another_global = function() --> another_global
	return 1
end

local M = {}
function M.field() return 1 end --> M.field
M.assigned = function() --> M.assigned
	return 1
end
function M:method() return self end --> M:method
function M:long_method() --> M:long_method
	return self
end
M.with_self = function(self) --> M.with_self
	return self
end
M["a b"] = function() return 1 end --> M["a b"]
M[1] = function() return 1 end --> M[1]
M[1000] = function() return 1 end --> M[1000]
for key = 1, 2 do
	M[key] = function() return key end --> M[key]
end
M.sub = {}
function M.sub.deep() return 1 end --> M.sub.deep
M.sub.more = { deeper = {} }
function M.sub.more.deeper:method() return self end --> M.sub.more.deeper:method
M.x, M.y = function() return 1 end, --> M.x
	function() return 2 end --> M.y
function string.extension() return 1 end --> string.extension

local constructed = {
	one = function() return 1 end, --> constructed.one
	two = 2,
	["th ree"] = function() return 3 end, --> constructed["th ree"]
	nested = {
		four = function() return 4 end, --> constructed.nested.four
		function() return 5 end, --> constructed.nested[1]
	},
	computed = #arg > 5 and 1 or 2,
	after = function(self) return self end, --> constructed.after
	function() return 6 end, --> constructed[1]
}
global_table = {
	entry = function() return 1 end, --> global_table.entry
}
local class = setmetatable({
	new = function() return 1 end, --> class.new
}, {
	__index = function(t, k) return k end, --> __index
})
M.table = {
	entry = function() return 1 end, --> M.table.entry
}

local chosen = #arg > 5 and function() return 1 end --> chosen
	or function() return 2 end --> chosen
local fallback = M.nothing or function() return 3 end --> fallback
local alias = plain
M.plain = plain

local upvalue_function, upvalue_table = nil, {}
local function setup() --> setup
	upvalue_function = function() return 1 end --> upvalue_function
	function upvalue_table.f() return 1 end --> upvalue_table.f
	function upvalue_table:m() return self end --> upvalue_table:m
	upvalue_table.t.g = function() return 1 end --> upvalue_table.t.g
	local function inner() return upvalue_function end --> inner
	return inner
end
upvalue_table.t = {}

local function returned() --> returned
	return function() return 1 end --> anonymous
end
local function returned_table() --> returned_table
	return {
		member = function() return 1 end, --> member
		function() return 2 end, --> anonymous
	}
end
local function registers(f) return f end --> registers
registers(function() return 1 end) --> anonymous
local wrapped = registers(function() return 1 end) --> anonymous
registers({ handler = function() return 1 end }) --> handler
table.sort({ 2, 1 }, function(a, b) return a < b end) --> anonymous
for value in function() return nil end do print(value) end --> anonymous

do
	local scoped = function() return 1 end --> scoped
	local x = scoped()
end
do
	local same_slot = function() return 2 end --> same_slot
	local x = same_slot()
end
local function recursive(n) --> recursive
	if n > 0 then return recursive(n - 1) end
	local function branch() return 1 end --> branch
	if n == 0 then
		M.conditional = function() return 1 end --> M.conditional
	else
		M.conditional = function() return 2 end --> M.conditional
	end
	while n < 0 do
		M.looped = function() return n end --> M.looped
		n = n + 1
	end
	return branch
end
local function varargs(...) --> varargs
	local f = select("#", ...) > 0 and ... or function() return 1 end --> f
	return f
end
local object = {}
function object.create() --> object.create
	local self = {}
	function self.get() return 1 end --> self.get
	self.callback = function() return 1 end --> self.callback
	return self
end

setup()()
returned()()
returned_table()
recursive(3)
varargs()
object.create()
keep = { class, constructed, chosen, fallback, alias, first, second, wrapped, late }

io.stdout:write("ready\n")
io.stdout:flush()
io.stdin:read("*l")
