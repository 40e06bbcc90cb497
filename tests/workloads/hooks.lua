-- SPDX-License-Identifier: MIT
-- usage: luajit hooks.lua SECONDS [jit|nojit]
-- Debug hooks written in Lua that do work of their own: line, call and return, count.
-- The hooked functions are never compiled.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local sethook = debug.sethook
local function work(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  return x
end
local function on_line() work(60) end
local function on_count() work(200) end
local function on_call() work(60) end

local function callee(x)
  local y = x + 1
  return y
end
local function hooked(n)
  local x = 0
  for i = 1, n do
    x = x + i
    x = x - i % 3
    x = callee(x)
    x = x + #tostring(x)
  end
  return x
end
local function w_line(n)
  sethook(on_line, "l")
  hooked(n)
  sethook()
end
local function w_count(n)
  sethook(on_count, "", 20)
  hooked(n)
  sethook()
end
local function w_call(n)
  sethook(on_call, "cr")
  hooked(n)
  sethook()
end
local function body(n) hooked(n) end
local function w_coroutine(n)
  local step = coroutine.wrap(body)
  sethook(on_count, "", 20)
  step(n)
  sethook()
end
if jit then
  for _, f in ipairs({ hooked, callee, w_line, w_count, w_call, w_coroutine, body }) do jit.off(f) end
end

drive({
  { "w_line", w_line }, { "w_count", w_count }, { "w_call", w_call }, { "w_coroutine", w_coroutine },
}, seconds)
