-- SPDX-License-Identifier: MIT
-- A script for wrk: makes each request and looks at each response in Lua.
local sent = 0
local function checksum(text)
  local x = 0
  for i = 1, #text do x = (x * 31 + text:byte(i)) % 65521 end
  return x
end
local function make_path(n)
  local parts = {}
  for i = 1, 12 do parts[i] = ("k%d=%d"):format(i, checksum("value" .. n + i)) end
  local query = table.concat(parts, "&")
  return "/?" .. query
end
function request()
  sent = sent + 1
  local path = make_path(sent)
  local text = wrk.format("GET", path)
  return text
end
local function each_header(name)
  local x = checksum(name)
  return x > 0 and name
end
function response(status, headers, body)
  local x = checksum(body)
  for name in pairs(headers) do x = x + #name:gsub("%a+", each_header) end
  if status ~= 200 then error("status " .. status .. x) end
end
