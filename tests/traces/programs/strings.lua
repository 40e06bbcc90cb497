-- SPDX-License-Identifier: MIT
local byte, sub, char = string.byte, string.sub, string.char
local function is_space(c)
  return c == 32 or c == 9 or c == 10
end
local function upper(c)
  if c >= 97 and c <= 122 then
    return c - 32
  end
  return c
end
local function words(s)
  local n, inside = 0, false
  for i = 1, #s do
    local c = byte(s, i)
    if is_space(c) then
      inside = false
    elseif not inside then
      inside = true
      n = n + 1
    end
  end
  return n
end
local function checksum(s)
  local h = 0
  for i = 1, #s do
    h = (h * 31 + upper(byte(s, i))) % 65521
  end
  return h
end
local text = ("the quick brown fox jumps over the lazy dog "):rep(20)
local total = 0
while true do
  total = total + words(text) + checksum(text)
  local piece = sub(text, total % 50 + 1, total % 50 + 9) .. char(65 + total % 26)
  total = total + #piece
end
