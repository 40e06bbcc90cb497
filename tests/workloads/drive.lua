-- SPDX-License-Identifier: MIT
-- What every workload shares: calls its work functions in turn until SECONDS of
-- CPU time are used, measures each, and prints `truth NAME SECONDS` lines.
--
--   local drive, setup = dofile(directory .. "drive.lua")
--   drive({ { "name", work } , ... }, seconds)
--
-- A work function takes a count. The count is doubled until a call takes 3 ms,
-- so that calls are long against the sampling interval with and without the
-- JIT. drive() itself is never compiled: a work function is always a frame.
local clock = os.clock

local function drive(works, seconds)
  local start = clock()
  for i = 1, #works do
    works[i].spent, works[i].count = 0, works[i].count or 1
  end
  repeat
    for i = 1, #works do
      local entry = works[i]
      local work = entry[2]
      local before = clock()
      work(entry.count)
      local took = clock() - before
      entry.spent = entry.spent + took
      if took < 0.003 and entry.count < 2 ^ 24 then
        entry.count = entry.count * 2
      elseif took > 0.020 and entry.count > 1 then
        entry.count = math.ceil(entry.count / 2)
      end
    end
  until clock() - start >= seconds
  for i = 1, #works do
    print(("truth %s %.6f"):format(works[i][1], works[i].spent))
  end
  io.stdout:flush()
end

-- Reads SECONDS [jit|nojit] from the command line.
local function setup(arguments)
  local seconds = tonumber(arguments[1]) or 2
  if jit then
    if arguments[2] == "nojit" then jit.off() end
    jit.off(drive)
  end
  return seconds
end

return drive, setup
