-- SPDX-License-Identifier: MIT
-- usage: luajit errors.lua SECONDS [jit|nojit]
-- Errors that unwind: plain, through C frames, from runtime faults, with handlers that work and
-- handlers that fail, rethrown, stack overflow, error objects, traceback in the handler.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local function work(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  return x
end
local function raise(d)
  work(40)
  if d == 0 then error("raised", 0) end
  local x = raise(d - 1)
  return x
end
local function w_plain(n)
  for _ = 1, n do pcall(raise, 8) end
end

local function raising_less()
  raise(2)
  return true
end
local function sort_raising()
  local list = { 3, 2, 1 }
  table.sort(list, raising_less)
end
local function raising_swap() raise(2) end
local function gsub_raising() string.gsub("abc", ".", raising_swap) end
local function w_through_c(n)
  for _ = 1, n do
    pcall(sort_raising)
    pcall(gsub_raising)
  end
end

local function index_nil(t) return t.a.b end
local function call_nil(t) t.a() end
local function add_nil(t) return t.a + 1 end
local function w_runtime(n)
  for _ = 1, n do
    pcall(index_nil, {})
    pcall(call_nil, {})
    pcall(add_nil, {})
  end
end

local function handle(message)
  work(40)
  return message
end
local function handle_traceback(message)
  local text = debug.traceback(message, 1)
  return text
end
local function handle_badly(message)
  work(40)
  error(message, 0)
end
local function w_handlers(n)
  for _ = 1, n do
    xpcall(raise, handle, 4)
    xpcall(raise, handle_traceback, 4)
    xpcall(index_nil, handle, {})
    xpcall(raise, handle_badly, 1)
  end
end

local function rethrow(d)
  local ok, message = pcall(raise, d)
  if not ok then error(message, 0) end
end
local function w_rethrow(n)
  for _ = 1, n do pcall(rethrow, 3) end
end

drive({
  { "w_plain", w_plain }, { "w_through_c", w_through_c }, { "w_runtime", w_runtime },
  { "w_handlers", w_handlers }, { "w_rethrow", w_rethrow },
}, seconds)
