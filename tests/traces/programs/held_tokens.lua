-- SPDX-License-Identifier: MIT
local byte = string.byte
local states = {}
local function digit(c)
  return c >= 48 and c <= 57
end
local function letter(c)
  return c >= 97 and c <= 122
end
function states.start(self, c)
  if digit(c) then
    self.state = "number"
    self.value = c - 48
  elseif letter(c) then
    self.state = "word"
  end
end
function states.number(self, c)
  if digit(c) then
    self.value = (self.value * 10 + c - 48) % 1000003
  else
    self.numbers = self.numbers + 1
    self.state = "start"
  end
end
function states.word(self, c)
  if not letter(c) then
    self.words = self.words + 1
    self.state = "start"
  end
end
local function feed(self, s)
  for i = 1, #s do
    states[self.state](self, byte(s, i))
  end
end
local text = "let x12 = 345 plus foo77 times 900 minus bar "
local lexer = { state = "start", value = 0, numbers = 0, words = 0 }
while true do
  feed(lexer, text)
end
