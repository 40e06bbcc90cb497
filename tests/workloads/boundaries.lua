-- SPDX-License-Identifier: MIT
-- usage: luajit boundaries.lua SECONDS [jit|nojit] [DEPTH]
-- Lua calls C calls Lua, DEPTH times over (12): by gsub, sort, pcall, a coroutine,
-- __tostring inside format, xpcall, and load with a reader function.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local depth = tonumber(arg[3]) or 14
local gsub, sort, format = string.gsub, table.sort, string.format
local create, resume = coroutine.create, coroutine.resume

local function bottom(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  return x
end

local level
local function gsub_step(d)
  local function replace()
    level(d - 1)
    return "y"
  end
  local text = gsub("x", "x", replace)
  return text
end

local function sort_step(d)
  local first = true
  local function less(a, b)
    if first then
      first = false
      level(d - 1)
    end
    return a < b
  end
  local list = { 2, 1 }
  sort(list, less)
  return list
end

local function pcall_step(d)
  local ok = pcall(level, d - 1)
  return ok
end

local function failing(d)
  level(d - 1)
  error("expected", 0)
end
local function on_error(message) return message end
local function xpcall_step(d)
  local ok = xpcall(failing, on_error, d)
  return ok
end

local function resume_step(d)
  local co = create(level)
  local ok = resume(co, d - 1)
  return ok
end

local printable = {}
local wanted
function printable.convert()
  level(wanted - 1)
  return "text"
end
local object = setmetatable({}, { __tostring = printable.convert })
local function format_step(d)
  wanted = d
  local text = format("%s", object)
  return text
end

local function load_step(d)
  local done = false
  local function reader()
    if done then return nil end
    done = true
    level(d - 1)
    return "return 1"
  end
  local chunk = load(reader)
  return chunk
end

local steps = { gsub_step, sort_step, pcall_step, xpcall_step, resume_step, format_step, load_step }
function level(d)
  if d == 0 then
    local x = bottom(2000)
    return x
  end
  local step = steps[d % #steps + 1]
  local r = step(d)
  return r
end

local function w_nested(n)
  for _ = 1, n do
    level(depth)
  end
end

drive({ { "w_nested", w_nested } }, seconds)
