-- SPDX-License-Identifier: MIT
-- The handler that nginx.conf serves: what web programs do with strings and tables.
local M = {}

local function escape(c)
  local text = ("%%%02X"):format(c:byte())
  return text
end
local function encode(s)
  local text = s:gsub("[^%w]", escape)
  return text
end
local function total(n)
  local x = 0
  for i = 1, n do x = x + i % 7 end
  return x
end
local function compare(a, b)
  local less = a.key < b.key
  return less
end
local function page(n)
  local rows = {}
  for i = 1, n do rows[i] = { key = (i * 7919) % 101, text = encode("row " .. i .. "?") } end
  table.sort(rows, compare)
  local out = {}
  for i = 1, n do out[i] = rows[i].text end
  return table.concat(out, "\n")
end

local function handler()
  local text = page(20)
  local sum = total(3000)
  ngx.say(text, "\n", sum)
end

M.handler = handler

return M
