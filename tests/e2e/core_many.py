#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ten thousand coroutines among a million objects: all are shown, live and from a core, in bounded memory.

    core_many.py MOONSPY LUAJIT [COROUTINES OBJECTS]
"""
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

MEMORY_KB = 256 << 10
HERE = os.path.dirname(os.path.abspath(__file__))


def check(text, coroutines):
    """Coroutine i has i % 10 + 1 frames of deep() below its yield."""
    depths, depth = {}, 0
    for line in text.splitlines():
        if line.startswith("Coroutine ") and line.endswith(": suspended"):
            depth = 0
        elif line.startswith("    deep ("):
            depth += 1
            depths[depth] = depths.get(depth, 0) + 1
    wanted = {d: coroutines - coroutines // 10 * (d - 1) for d in range(1, 11)}
    return None if depths == wanted else f"depths {depths}, not {wanted}"


def run(moonspy, arguments, out):
    start = time.monotonic()
    with open(out, "wb") as f:
        child = subprocess.Popen([moonspy, *arguments], stdout=f, stderr=subprocess.PIPE)
        error = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    took = time.monotonic() - start
    print(f"{arguments[0]} {arguments[1]}: {took:.2f} s, {usage.ru_utime + usage.ru_stime:.2f} s of CPU, "
          f"{usage.ru_maxrss >> 10} MiB")
    if child.returncode:
        return f"exit status {child.returncode}: {error.decode()}"
    return None if usage.ru_maxrss <= MEMORY_KB else f"{usage.ru_maxrss} KiB of memory"


def main():
    moonspy, luajit = sys.argv[1:3]
    coroutines, objects = (int(n) for n in (sys.argv[3:] or ["10000", "1000000"]))
    if not shutil.which("gcore") or not shutil.which(luajit):
        print("SKIP: gcore and luajit are needed")
        return 77
    folder = tempfile.mkdtemp(prefix="moonspy-many.")
    target = subprocess.Popen([luajit, os.path.join(HERE, "../workloads/cores/many.lua"), str(coroutines), str(objects)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    failed = 0
    try:
        if target.stdout.readline() != b"ready\n":
            print("FAIL: the program did not start")
            return 1
        subprocess.run(["gcore", "-o", f"{folder}/core", str(target.pid)], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        for arguments in (["dump", "-c", "-p", str(target.pid)], ["core", "-c", f"{folder}/core.{target.pid}"],
                          ["core", "-cll", f"{folder}/core.{target.pid}"]):
            wrong = run(moonspy, arguments, f"{folder}/out")
            with open(f"{folder}/out", encoding="utf-8") as f:
                wrong = wrong or check(f.read(), coroutines)
            if wrong:
                print(f"FAIL: {' '.join(arguments[:2])}: {wrong}")
                failed = 1
    finally:
        target.stdin.close()
        target.wait()
        shutil.rmtree(folder)
    return failed


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(main())
