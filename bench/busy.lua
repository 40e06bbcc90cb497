-- SPDX-License-Identifier: MIT
-- usage: luajit busy.lua [jit|nojit] [DEPTH] [profiled | sysprof MS FILE]
-- Works for ever on a steady stack of Lua functions about DEPTH deep, with a C boundary (gsub) at every
-- tenth and a coroutine at every fortieth. After each 20 ms of CPU time it prints `CLOCK WORK`: CPU seconds
-- and work done so far. With `profiled` LuaJIT's own profiler is on, at 1 ms; with `sysprof` moonspy's in-process one.
local mode, depth = arg[1], tonumber(arg[2]) or 40
if mode == "nojit" then jit.off() end
if arg[3] == "profiled" then require("jit.p").start("fli1", "/dev/null") end
if arg[3] == "sysprof" then
  assert(require("moonspy.sysprof").start {mode = "C", interval = tonumber(arg[4]), path = arg[5]})
end
local clock, gsub, wrap, stdout = os.clock, string.gsub, coroutine.wrap, io.stdout

local work, list = 0, {}
for i = 1, 256 do list[i] = i end
local function mix(a, b) return (a * 31 + b) % 65521 end
local function bottom(n)
  local x = 0
  for i = 1, n do
    local at = i % 256 + 1
    x = mix(x, list[at])
    list[at] = x
  end
  work = work + n
  return x
end

local function stay()
  local said = clock()
  local x
  repeat
    x = bottom(2000)
    local now = clock()
    if now > said + 0.02 then
      stdout:write(("%.9f %d\n"):format(now, work))
      stdout:flush()
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
