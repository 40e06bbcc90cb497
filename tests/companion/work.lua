-- SPDX-License-Identifier: MIT
-- Prints the same each time: closures, coroutines, errors, finalizers, compiled loops, and a listener of its own to traces.
local sum = 0
for i = 1, 200000 do sum = (sum * 31 + i) % 1000003 end
print("loop", sum)

local made = {}
for i = 1, 300 do made[i] = function() return i end end
for round = 1, 200 do for i = 1, #made do sum = sum + made[i]() end end
print("closures", sum)

local steps = coroutine.wrap(function() for i = 1, 1000 do coroutine.yield(i) end end)
local total = 0
for i = 1, 1000 do total = total + steps() end
print("coroutine", total)

local failed = 0
for i = 1, 500 do
  local good, why = pcall(function() if i % 2 == 0 then error({code = i}) end return i end)
  if not good then failed = failed + why.code end
end
print("errors", failed)

local finalized = 0
for i = 1, 100 do getmetatable(newproxy(true)).__gc = function() finalized = finalized + 1 end end
collectgarbage() collectgarbage()
print("finalizers", finalized)

local words = {}
for word in ("the quick brown fox jumps over the lazy dog "):rep(50):gmatch("%a+") do words[word] = (words[word] or 0) + 1 end
local names = {}
for word, n in pairs(words) do names[#names + 1] = word .. "=" .. n end
table.sort(names)
print("words", table.concat(names, " "))

local heard = {}
local function listen(what) heard[what] = true end
jit.attach(listen, "trace")
for i = 1, 1000 do sum = sum + i % 3 end
jit.attach(listen)
print("listener", heard.start, heard.stop)
print("caller", select("#", debug.getinfo(1, "S").what), pcall(load, "x ="))
