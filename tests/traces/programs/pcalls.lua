-- SPDX-License-Identifier: MIT
local function risky(x)
  if x < 0 then
    error("negative")
  end
  local y = x * 3
  return y % 17
end
local function guarded(x)
  local ok, v = pcall(risky, x)
  if ok then
    return v
  end
  return 0
end
local function handler(m)
  return m
end
local function traced(x)
  local ok, v = xpcall(risky, handler, x)
  return ok and v or 1
end
while true do
  local s = 0
  for i = 1, 500 do
    s = s + guarded(i)
    s = s + traced(i + 1)
  end
end
