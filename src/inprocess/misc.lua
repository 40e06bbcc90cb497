-- SPDX-License-Identifier: MIT
-- For scripts that say misc.sysprof.
return { sysprof = require "moonspy.sysprof" }
