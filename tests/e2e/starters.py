#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: starters.py NAME PROFILE OUTPUT RATE: the first thread of tests/workloads/starts has its samples, and they are whole."""
import json
import re
import sys

name, profile, output, rate = sys.argv[1:]
with open(output) as f:
    seconds = float(re.search(r"first thread ([0-9.]+)", f.read()).group(1))
with open(profile) as f:
    stacks = json.load(f)["stacks"]
threads = {}
for stack in stacks:
    if stack["pid"] == stack["tid"]:
        threads.setdefault(stack["pid"], []).append(stack)
first = max(threads.values(), key=lambda own: sum(stack["count"] for stack in own), default=[])
count = sum(stack["count"] for stack in first)
broken = sum(stack["count"] for stack in first if any(frame["kind"] == "error" for frame in stack["frames"]))
expected = seconds * float(rate)
print("    %s: %d samples of the first thread, %.0f %% of its CPU time, %.2f %% whole"
      % (name, count, 100 * count / expected, 100 - 100 * broken / max(count, 1)))
# It runs before it is attached to, and before its first sample.
least = 0.6 if name.endswith("launch") else 0.25
sys.exit(not (least * expected <= count <= 1.1 * expected and broken <= 0.01 * count))
