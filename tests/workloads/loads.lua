-- SPDX-License-Identifier: MIT
-- usage: luajit loads.lua SECONDS [jit|nojit]
-- Functions that come and go: a loadstring loop (prototypes are collected and their
-- addresses used again), stripped bytecode, string.dump and back, chunk names of all kinds.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local function helper(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  return x
end

local generation = 0
local function compile()
  generation = generation + 1
  return loadstring(("local function made_%d(n) local x = 0 for i = 1, n do x = x + i %% %d end return x end\n" ..
    "return made_%d"):format(generation % 3, generation % 90 + 2, generation % 3), "=made")
end
local function w_loadstring(n)
  local x = 0
  for _ = 1, n do
    local chunk = compile()
    local made = chunk()
    x = x + made(300)
  end
  return x
end

local function original(n, callback)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  return x + callback(n)
end
local stripped = loadstring(string.dump(original, true), "=stripped")
local kept = loadstring(string.dump(original), "=kept")
local function w_stripped(n)
  local x = 0
  for _ = 1, n do x = x + stripped(200, helper) end
  return x
end
local function w_kept(n)
  local x = 0
  for _ = 1, n do x = x + kept(200, helper) end
  return x
end
local function w_dump(n)
  local x = 0
  for _ = 1, n do
    local again = loadstring(string.dump(original), "=again")
    x = x + again(200, helper)
  end
  return x
end

local names = {
  "@folder/plain.lua", "=short", "@", "=", "=with;semi", "=with space", "=tab\tand\nnewline",
  "=" .. ("d/"):rep(4000), "local source = 'the text itself'", "=\1\2\255", "=[string]", "=a:12",
}
local chunks = {}
for i, name in ipairs(names) do
  chunks[i] = assert(loadstring("local function work(n) local x = 0 for i = 1, n do x = x + i % 7 end return x end\n" ..
    "return work", name))()
end
local function w_names(n)
  local x = 0
  for _ = 1, n do
    for i = 1, #chunks do
      local work = chunks[i]
      x = x + work(100)
    end
  end
  return x
end

drive({
  { "w_loadstring", w_loadstring }, { "w_stripped", w_stripped }, { "w_kept", w_kept },
  { "w_dump", w_dump }, { "w_names", w_names },
}, seconds)
