-- SPDX-License-Identifier: MIT
local byte, sub, format, concat = string.byte, string.sub, string.format, table.concat
local parse_value
local function skip(s, i)
  while byte(s, i) == 32 do
    i = i + 1
  end
  return i
end
local function parse_number(s, i)
  local n = 0
  local c = byte(s, i)
  while c and c >= 48 and c <= 57 do
    n = n * 10 + (c - 48)
    i = i + 1
    c = byte(s, i)
  end
  return n, i
end
local function parse_string(s, i)
  local start = i + 1
  i = start
  while byte(s, i) ~= 34 do
    i = i + 1
  end
  return sub(s, start, i - 1), i + 1
end
local function parse_list(s, i)
  local list, n = {}, 0
  i = skip(s, i + 1)
  while byte(s, i) ~= 93 do
    n = n + 1
    list[n], i = parse_value(s, i)
    i = skip(s, i)
    if byte(s, i) == 44 then
      i = skip(s, i + 1)
    end
  end
  return list, i + 1
end
local function parse_object(s, i)
  local object, key = {}, nil
  i = skip(s, i + 1)
  while byte(s, i) ~= 125 do
    key, i = parse_string(s, i)
    i = skip(s, skip(s, i) + 1)
    object[key], i = parse_value(s, i)
    i = skip(s, i)
    if byte(s, i) == 44 then
      i = skip(s, i + 1)
    end
  end
  return object, i + 1
end
function parse_value(s, i)
  local c = byte(s, i)
  if c == 123 then
    return parse_object(s, i)
  elseif c == 91 then
    return parse_list(s, i)
  elseif c == 34 then
    return parse_string(s, i)
  end
  return parse_number(s, i)
end
local function encode(v, out)
  if type(v) == "table" then
    out[#out + 1] = "["
    for i = 1, #v do
      encode(v[i], out)
      out[#out + 1] = ","
    end
    out[#out + 1] = "]"
  else
    out[#out + 1] = format("%s", v)
  end
end
local text = '{"a": [1, 2, 3, 44, 555], "name": "moon", "list": [10, 20, [30, 40], {"x": 7}]}'
while true do
  local v = parse_value(text, 1)
  local out = {}
  encode(v.list, out)
  assert(#concat(out) > 0)
end
