-- SPDX-License-Identifier: MIT
-- usage: luajit finalizers.lua SECONDS [jit|nojit]
-- Lua finalizers of userdata and cdata, run by steps of the collector from the interpreter, from
-- compiled code, from C functions, and by a full collection; a finalizer that fails, one
-- that resumes a coroutine.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local has_ffi, ffi = pcall(require, "ffi")
local function work(n)
  local x = 0
  for i = 1, n do x = x + i % 3 end
  return x
end
local function finalize_cdata() work(200) end
local function finalize_userdata() work(200) end
local function body() work(200) end
local function finalize_resume()
  local co = coroutine.create(body)
  coroutine.resume(co)
end

local function make_userdata(finalizer)
  local u = newproxy(true)
  getmetatable(u).__gc = finalizer
  return u
end
local box = has_ffi and ffi.typeof("struct { int v; }")
local function make_cdata()
  local cell = box()
  ffi.gc(cell, finalize_cdata)
  return cell
end

local function w_userdata(n)
  for i = 1, n do
    if i % 10 == 0 then make_userdata(finalize_userdata) end
    local t = { i }
    if t[1] ~= i then error("lost") end
  end
end
local function w_cdata(n)
  if not has_ffi then return end
  for i = 1, n do
    if i % 10 == 0 then make_cdata() end
    local t = { i, i }
    if t[1] ~= i then error("lost") end
  end
end
local function w_resume(n)
  for i = 1, n do
    if i % 10 == 0 then make_userdata(finalize_resume) end
    local t = { i }
    if t[1] ~= i then error("lost") end
  end
end
-- Garbage comes from C: the step runs inside string.rep and concat.
local function w_strings(n)
  for i = 1, n do
    if i % 10 == 0 then make_userdata(finalize_userdata) end
    local s = string.rep("x" .. i, 20)
    if #s < 20 then error("lost") end
  end
end
local function w_collect(n)
  for _ = 1, n do
    for _ = 1, 8 do make_userdata(finalize_userdata) end
    collectgarbage()
  end
end

drive({
  { "w_userdata", w_userdata }, { "w_cdata", w_cdata }, { "w_resume", w_resume },
  { "w_strings", w_strings }, { "w_collect", w_collect },
}, seconds)
