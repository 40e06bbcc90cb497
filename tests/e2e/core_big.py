#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How much memory `moonspy core` takes of a big core: it must stay below a bound.

    core_big.py MOONSPY CORE
"""
import os
import subprocess
import sys
import time

MEMORY_KB = 128 << 10


def main():
    start = time.monotonic()
    with subprocess.Popen([sys.argv[1], "core", "-q", "-lc", sys.argv[2]], stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    print(f"{os.path.getsize(sys.argv[2]) >> 20} MiB: {time.monotonic() - start:.2f} s, {usage.ru_maxrss >> 10} MiB of memory")
    if child.returncode or usage.ru_maxrss > MEMORY_KB:
        print(f"FAIL: exit status {child.returncode}, {usage.ru_maxrss} KiB of memory")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
