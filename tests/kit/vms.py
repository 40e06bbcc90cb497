#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: vms.py MOONSPY KIT_VMS LIBRARY: the VMs of a process are those of its list; what lies in the list is refused, what it
does not have is found in memory."""
import json
import subprocess
import sys


def inspect(moonspy, pid):
    done = subprocess.run([moonspy, "inspect", "-j", "-p", str(pid)], stdout=subprocess.PIPE, text=True, check=False)
    told = json.loads(done.stdout)
    return {vm["g"]: vm["listed"] for vm in told["vms"] if vm["proved"]}, len(told["vms"])


def main():
    moonspy, program, library = sys.argv[1:]
    child = subprocess.Popen([program, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        first, second = child.stdout.readline().split()
        for what, expected in (("the list", {first: True, second: True}), ("lies", {first: True, second: True}),
                               ("missed", {first: False, second: True}), ("endless", {first: False, second: True})):
            found, count = inspect(moonspy, child.pid)
            if found != expected or count != len(expected):
                sys.exit("%s: %s of %d VMs, not %s" % (what, found, count, expected))
            child.stdin.write("\n")
            child.stdin.flush()
            child.stdout.readline()
    finally:
        child.kill()
        child.wait()
    print("list of live VMs: 2 found by it; 3 lies refused; one that it has not found in memory")


main()
