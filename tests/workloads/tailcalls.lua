-- SPDX-License-Identifier: MIT
-- usage: luajit tailcalls.lua SECONDS [jit|nojit]
-- Tail calls: mutual, to a vararg function, to a fast function, to a C function,
-- through __call, out of pcall and out of a coroutine's body.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local function spin(n)
  local x = 0
  for i = 1, n do x = x + i % 3 end
  return x
end
local pong
local function ping(n)
  if n == 0 then return spin(500) end
  return pong(n - 1)
end
function pong(n)
  if n == 0 then return spin(500) end
  return ping(n - 1)
end
local function w_mutual(n)
  local x = 0
  for i = 1, n do x = x + ping(100 + i % 2) end
  return x
end

local function many(n, ...)
  local x = spin(n)
  return x + select("#", ...)
end
local function to_many(...) return many(500, ...) end
local function w_vararg(n)
  local x = 0
  for _ = 1, n do x = x + to_many(1, 2, 3) end
  return x
end

local function to_fast(s) return s:rep(50) end
local function to_c(list) return table.concat(list, ",") end
local parts = {}
for i = 1, 100 do parts[i] = "part" .. i end
local function w_builtin(n)
  local x = 0
  for _ = 1, n do
    local text = to_fast("abc")
    local joined = to_c(parts)
    x = x + #text + #joined
  end
  return x
end

local function on_call(_, n)
  local x = spin(n)
  return x
end
local callable = setmetatable({}, { __call = on_call })
local function to_callable() return callable(500) end
local function w_callable(n)
  local x = 0
  for _ = 1, n do x = x + to_callable() end
  return x
end

local function to_pcall() return pcall(spin, 500) end
local function w_pcall(n)
  local x = 0
  for _ = 1, n do
    local _, v = to_pcall()
    x = x + v
  end
  return x
end

local function to_spin() return spin(500) end
local function w_coroutine(n)
  local x = 0
  for _ = 1, n do
    local body = coroutine.wrap(to_spin)
    x = x + body()
  end
  return x
end

drive({
  { "w_mutual", w_mutual }, { "w_vararg", w_vararg }, { "w_builtin", w_builtin },
  { "w_callable", w_callable }, { "w_pcall", w_pcall }, { "w_coroutine", w_coroutine },
}, seconds)
