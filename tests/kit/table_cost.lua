-- SPDX-License-Identifier: MIT
-- usage: luajit table_cost.lua N: has as many loops compiled, each with calls that are inlined and with side traces, and next to
-- nothing else to do. Prints how many traces there are then, and the bytes of their code.
local source = [[
local K = ...
local function clamp(x, a, b) if x < a then return a elseif x > b then return b end return x end
local Point = {} Point.__index = Point
function Point:add(o) self.x = self.x + o.x self.y = self.y + o.y return self end
function Point:dot(o) return self.x * o.x + self.y * o.y end
return function(n)
  local p, q = setmetatable({ x = K, y = 1 }, Point), setmetatable({ x = 2, y = K }, Point)
  local s, t = 0, {}
  for i = 1, n do
    s = s + clamp(i * K % 17, 2, 13)
    if i % 3 == 0 then p:add(q) else s = s - p:dot(q) end
    t[i % 8 + 1] = s
    if i % 5 == 0 then s = s + #tostring(t[1]) end
  end
  return s
end
]]
jit.opt.start("maxtrace=65535", "maxmcode=65536", "hotloop=10", "hotexit=4")
local keep = {}
for i = 1, tonumber((...)) do
  keep[i] = assert(loadstring(source, "=loop" .. i))(i)
  keep[i](80)
end
local util = require("jit.util")
local traces, code = 0, 0
for n = 1, 65534 do
  local mcode = util.traceinfo(n) and util.tracemc(n)
  if mcode then
    traces, code = traces + 1, code + #mcode
  end
end
print(traces .. " traces, " .. code .. " bytes of code")
