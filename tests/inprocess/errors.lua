-- SPDX-License-Identifier: MIT
-- Everything that can go wrong, and what is said then: errors.lua FOLDER. The program goes on in each case.
local sysprof = require "moonspy.sysprof"
local misc = require "moonspy.misc"
local folder = arg[1]
local EINVAL, ENOENT, EBUSY, EISDIR, ENOSPC = 22, 2, 16, 21, 28

local function refused(text, number, result, message, code)
  if result ~= nil or not message:find(text, 1, true) or code ~= number then
    error(("wanted %q, %d, got %s, %s, %s"):format(text, number, tostring(result), tostring(message), tostring(code)), 2)
  end
end

local function burn(seconds)
  local clock, x = os.clock() + seconds, 0
  while os.clock() < clock do
    for i = 1, 1e5 do x = x + i % 7 end
  end
  return x
end

assert(misc.sysprof == sysprof)
for name, value in pairs(sysprof.report()) do
  assert(name == "vmstate" or value == 0, name)
end

refused("profiler misuse", EINVAL, sysprof.start())
refused("profiler misuse", EINVAL, sysprof.start("C"))
refused("profiler misuse", EINVAL, sysprof.start({mode = "D"}, 1))
for _, options in ipairs {{}, {mode = "A"}, {mode = "CC"}, {mode = 1}, {mode = "D", interval = 0}, {mode = "D", interval = -1},
                          {mode = "D", interval = 0.5}, {mode = "D", interval = 0 / 0}, {mode = "D", interval = 1e300},
                          {mode = "D", interval = "10"}, {mode = "C", path = 1}, {mode = "C", path = "a\0b"}} do
  refused("profiler misuse", EINVAL, sysprof.start(options))
end
refused("profiler is not running", EINVAL, sysprof.stop())

refused("No such file or directory", ENOENT, sysprof.start {mode = "C", path = folder .. "/none/x.bin"})
refused("Is a directory", EISDIR, sysprof.start {mode = "C", path = folder})
refused("No space left on device", ENOSPC, sysprof.start {mode = "C", path = "/dev/full"})
refused("profiler is not running", EINVAL, sysprof.stop())

-- Counters only; twice; a file that a second start must not touch.
local path = folder .. "/kept.bin"
local file = assert(io.open(path, "w"))
file:write("kept")
file:close()
assert(sysprof.start {mode = "D", interval = 1})
refused("profiler is running already", EINVAL, sysprof.start {mode = "D"})
refused("profiler is running already", EINVAL, sysprof.start {mode = "C", path = path})
burn(0.2)
assert(sysprof.report().samples > 0)
assert(sysprof.stop())
refused("profiler is not running", EINVAL, sysprof.stop())
assert(io.open(path):read("*a") == "kept")
local report, sum = sysprof.report(), 0
for name, value in pairs(report.vmstate) do
  sum = sum + value
  assert(report[name] == value)
end
assert(sum == report.samples and sum > 0)

-- The largest interval: no sample, a whole file.
path = folder .. "/huge.bin"
assert(sysprof.start {mode = "C", interval = 2 ^ 31 - 1, path = path})
burn(0.05)
assert(sysprof.stop())
assert(sysprof.report().samples == 0)
assert(io.open(path):read("*a"):sub(-1) == "\128")

-- A file used again is written anew.
for _ = 1, 5 do
  assert(sysprof.start {mode = "C", interval = 1, path = path})
  assert(sysprof.stop())
end
local once = io.open(path):read("*a")
assert(once:find("ljs", 2, true) == nil)

-- A library that is loaded while the profiler runs.
local ffi = require "ffi"
ffi.cdef "unsigned long crc32(unsigned long crc, const char *data, unsigned int size);"
path = folder .. "/load.bin"
assert(sysprof.start {mode = "C", interval = 1, path = path})
burn(0.05)
local zlib, stop, data = ffi.load "libz.so.1", os.clock() + 0.5, ("x"):rep(100000)
while os.clock() < stop do
  zlib.crc32(0, data, #data)
end
assert(sysprof.stop())
assert(io.open(path):read("*a"):find("libz.so.1", 1, true))
print("ok")
