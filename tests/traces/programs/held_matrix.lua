-- SPDX-License-Identifier: MIT
local function make(n)
  local m = {}
  for i = 1, n do
    local row = {}
    for j = 1, n do
      row[j] = i + j
    end
    m[i] = row
  end
  return m
end
local function cell(a, b, i, j, n)
  local s, row = 0, a[i]
  for k = 1, n do
    s = s + row[k] * b[k][j]
  end
  return s
end
local function mul(a, b, out, n)
  for i = 1, n do
    local row = out[i]
    for j = 1, n do
      row[j] = cell(a, b, i, j, n) % 1000
    end
  end
end
local a, b, c = make(24), make(24), make(24)
while true do
  mul(a, b, c, 24)
  a, c = c, a
end
