-- SPDX-License-Identifier: MIT
local bit = require("bit")
local band, bxor, rol, tobit, byte = bit.band, bit.bxor, bit.rol, bit.tobit, string.byte
local function mul32(a, b)
  local lo = band(a, 0xffff) * b
  local hi = band(bit.rshift(a, 16), 0xffff) * b
  return tobit(lo + band(hi, 0xffff) * 65536)
end
local function round(h, k)
  k = mul32(k, 0x2d51)
  k = rol(k, 15)
  h = bxor(h, k)
  h = rol(h, 13)
  return tobit(mul32(h, 5) + 0x6b64)
end
local function finish(h, n)
  h = bxor(h, n)
  h = bxor(h, bit.rshift(h, 16))
  h = mul32(h, 0x6b3d)
  return bxor(h, bit.rshift(h, 13))
end
local function word(s, i)
  local a, b, c, d = byte(s, i, i + 3)
  return a + b * 256 + c * 65536 + d * 16777216
end
local function hash(s)
  local h = 0
  for i = 1, #s - 3, 4 do
    h = round(h, word(s, i))
  end
  return finish(h, #s)
end
local text = ("abcdefghijklmnop"):rep(16)
while true do
  hash(text)
end
