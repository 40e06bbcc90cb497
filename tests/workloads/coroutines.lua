-- SPDX-License-Identifier: MIT
-- usage: luajit coroutines.lua SECONDS [jit|nojit] [NESTING]
-- Coroutines: nested 100 deep, yields across pcall and metamethods, errors inside,
-- dead ones, a resume from within a callback, long-lived ones in turn.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local nesting = tonumber(arg[3]) or 100
local create, resume, wrap, yield = coroutine.create, coroutine.resume, coroutine.wrap, coroutine.yield
local status, running = coroutine.status, coroutine.running

local function nest_bottom(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  return x
end
local function nest(d)
  if d == 0 then
    local x = nest_bottom(6000)
    return x
  end
  local inner = wrap(nest)
  local x = inner(d - 1)
  return x
end
local function w_nested(n)
  for _ = 1, n do
    nest(nesting)
  end
end

local function churn(n)
  local x = 0
  for i = 1, n do x = x + i % 5 end
  return x
end
local function yielding(n)
  for i = 1, n do
    churn(200)
    yield(i)
  end
  error("enough", 0)
end
local function protected_body(n)
  local ok, message = pcall(yielding, n)
  churn(100)
  return ok, message
end
local function w_protected(n)
  for _ = 1, n do
    local co = create(protected_body)
    for _ = 1, 6 do resume(co, 5) end
    if status(co) ~= "dead" then error("not dead") end
    resume(co)
  end
end

local function dying(d)
  churn(150)
  if d == 0 then error("boom", 0) end
  local x = dying(d - 1)
  return x
end
local function rethrow(d)
  local inner = wrap(dying)
  local x = inner(d)
  return x
end
local function w_errors(n)
  for _ = 1, n do
    local co = create(rethrow)
    local ok = resume(co, 5)
    if ok or status(co) ~= "dead" then error("no error") end
    resume(co)
  end
end

local function on_index(_, key)
  churn(100)
  local x = yield(key)
  return x
end
local function on_add(a, b)
  churn(100)
  local x = yield(b)
  return x
end
local proxy = setmetatable({}, { __index = on_index, __add = on_add })
local function meta_body()
  local x = 0
  for i = 1, 4 do
    x = x + proxy[i]
    local y = proxy + i
    x = x + y
  end
  return x
end
local function w_metamethods(n)
  for _ = 1, n do
    local co = create(meta_body)
    for i = 0, 8 do resume(co, i) end
  end
end

local function element(word)
  local _, text = resume(coroutine.create(churn), #word * 60)
  return text and word
end
local function w_in_callback(n)
  for _ = 1, n do
    string.gsub("one two three", "%a+", element)
  end
end

local pool = {}
local function server()
  local total = 0
  while true do
    total = total + churn(80)
    local main = running()
    yield(main and total)
  end
end
for i = 1, 20 do pool[i] = create(server) end
local function w_turns(n)
  for i = 1, n do
    local co = pool[i % 20 + 1]
    resume(co)
  end
end

drive({
  { "w_nested", w_nested }, { "w_protected", w_protected }, { "w_errors", w_errors },
  { "w_metamethods", w_metamethods }, { "w_in_callback", w_in_callback }, { "w_turns", w_turns },
}, seconds)
