-- SPDX-License-Identifier: MIT
-- usage: luajit collector.lua SECONDS [jit|nojit]
-- Programs that keep the collector busy: many small tables, growing tables, strings,
-- closures, string building by buffer, and by repeated concatenation.
local drive, setup = dofile((arg[0]:match("^.*/") or "") .. "drive.lua")
local seconds = setup(arg)

local concat, rep, format, char = table.concat, string.rep, string.format, string.char

local function node(i, next_node) return { value = i, next = next_node } end
local function w_lists(n)
  for _ = 1, n do
    local head
    for i = 1, 200 do head = node(i, head) end
    if not head.next then error("lost") end
  end
end
local function w_tables(n)
  for i = 1, n do
    local t = {}
    for k = 1, 60 do
      t[k] = k
      t["key" .. k] = i
    end
  end
end
local function w_closures(n)
  local f
  for i = 1, n do
    local function capture() return i end
    f = capture
  end
  local x = f()
  return x
end
local function w_concat(n)
  for i = 1, n do
    local s = ""
    for k = 1, 30 do s = s .. k .. "," .. i end
    if #s < 30 then error("lost") end
  end
end
local function w_buffer(n)
  for i = 1, n do
    local parts = {}
    for k = 1, 30 do parts[k] = format("%d=%s", k, rep(char(65 + k % 26), 10)) end
    local s = concat(parts, "&")
    if #s < i % 2 then error("lost") end
  end
end
local has_buffer, buffer = pcall(require, "string.buffer")
local function w_string_buffer(n)
  if not has_buffer then return end
  local b = buffer.new()
  for i = 1, n do
    b:reset()
    for k = 1, 30 do b:put("x", k, "y", i) end
    local s = b:tostring()
    local copy = buffer.decode(buffer.encode({ s, i }))
    if copy[2] ~= i then error("lost") end
  end
end
local function w_collect(n)
  for _ = 1, n do
    local t = {}
    for k = 1, 100 do t[k] = { k } end
    collectgarbage()
  end
end

drive({
  { "w_lists", w_lists }, { "w_tables", w_tables }, { "w_closures", w_closures }, { "w_concat", w_concat },
  { "w_buffer", w_buffer }, { "w_string_buffer", w_string_buffer }, { "w_collect", w_collect },
}, seconds)
