-- SPDX-License-Identifier: MIT
-- usage: luajit callnames.lua SECONDS [jit|nojit]
-- One function, one name, whichever way it is called: by an alias, from a table under another
-- key, as a method, as an upvalue, from a nested table, by a tail call; closures that are
-- returned, and functions without a name.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local function spin(n)
  local x = 0
  for i = 1, n do x = x + i % 3 end
  return x
end

local alias = spin
local class = { other_key = spin, nested = { deeper = {} } }
class.__index = class
function class:method(n)
  local x = spin(n)
  return x + #self
end
function class.nested.deeper.inner(n)
  local x = alias(n)
  return x
end
class.assigned = function(n)
  local x = class.other_key(n)
  return x
end
local object = setmetatable({}, class)
local also_method = class.method

local counter
local function through_upvalue(n)
  local x = counter(n)
  return x
end
counter = function(n)
  local x = spin(n)
  return x
end

local function make(kept)
  return function(n) --@returned
    local x = kept(n)
    return x
  end
end
local returned = make(spin)
local function ends_in_call(n) return class.assigned(n) end
local function apply(f, n)
  local x = f(n)
  return x
end

local function w_alias(n)
  local x = 0
  for _ = 1, n do x = x + alias(300) + class.other_key(300) end
  return x
end
local function w_method(n)
  local x = 0
  for _ = 1, n do x = x + object:method(300) + also_method(object, 300) end
  return x
end
local function w_nested(n)
  local x = 0
  local inner = class.nested.deeper.inner
  for _ = 1, n do x = x + inner(300) + class.nested.deeper.inner(300) end
  return x
end
local function w_upvalue(n)
  local x = 0
  for _ = 1, n do x = x + through_upvalue(300) end
  return x
end
local function w_returned(n)
  local x = 0
  for _ = 1, n do x = x + returned(300) + make(counter)(300) end
  return x
end
local function w_tail(n)
  local x = 0
  for _ = 1, n do x = x + ends_in_call(300) end
  return x
end
local function w_nameless(n)
  local x = 0
  for _ = 1, n do
    x = x + apply(function(m) --@nameless
      local y = spin(m)
      return y
    end, 300)
  end
  return x
end

drive({
  { "w_alias", w_alias }, { "w_method", w_method }, { "w_nested", w_nested }, { "w_upvalue", w_upvalue },
  { "w_returned", w_returned }, { "w_tail", w_tail }, { "w_nameless", w_nameless },
}, seconds)
