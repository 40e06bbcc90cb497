-- SPDX-License-Identifier: MIT
-- usage: luajit busy.lua [jit|nojit] [DEPTH] [profiled]
-- Works for ever on a steady stack of Lua functions about DEPTH deep, with a C boundary (gsub) at every
-- tenth and a coroutine at every fortieth. After each 20 ms of CPU time it prints `CLOCK WORK PROFILED`:
-- CPU seconds, work done so far, and whether LuaJIT's own profiler was on: with `profiled` it is, at 1 ms,
-- in every other second.
local mode, depth, profiled = arg[1], tonumber(arg[2]) or 40, arg[3] == "profiled"
if mode == "nojit" then jit.off() end
local profiler = profiled and require("jit.p")
local clock, gsub, wrap, stdout = os.clock, string.gsub, coroutine.wrap, io.stdout

local work = 0
local function bottom(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  work = work + n
  return x
end

local on, turn = false, clock() + 1
local function switch(now)
  turn, on = now + 1, not on
  if on then profiler.start("fli1", "/dev/null") else profiler.stop() end
end

local function stay()
  local said = clock()
  local x
  repeat
    x = bottom(2000)
    local now = clock()
    if now > said + 0.02 then
      stdout:write(("%.9f %d %d\n"):format(now, work, on and 1 or 0))
      stdout:flush()
      if profiled and now > turn then switch(now) end
      said = clock()
    end
  until x < 0
end

local level
local function via_gsub(d)
  local function replace() level(d) end
  local text = gsub("x", "x", replace)
  return text
end
local function via_coroutine(d)
  local inner = wrap(level)
  local x = inner(d)
  return x
end
function level(d)
  if d <= 0 then
    stay()
    return 0
  end
  local x
  if d % 40 == 0 then
    x = via_coroutine(d - 3)
  elseif d % 10 == 0 then
    x = via_gsub(d - 6)
  else
    x = level(d - 1)
  end
  return x
end
level(depth)
