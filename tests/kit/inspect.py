#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: inspect.py MOONSPY HOW FILE. The file's descriptor is found, HOW, as first evidence, nothing contradicts it, and
all probes are told of."""
import collections
import json
import subprocess
import sys

PROBES = ["error_thrown", "gc_phase", "heartbeat", "trace_abort", "trace_exit", "trace_flush", "trace_start", "trace_stop", "vm_closed",
          "vm_created"]


def main():
    moonspy, how, path = sys.argv[1:]
    told = json.loads(subprocess.run([moonspy, "inspect", "-j", path], stdout=subprocess.PIPE, text=True).stdout)
    found = [e for e in told["evidence"] if e["found"]]
    ours = {e["field"]: e for e in found if e["source"] == "descriptor"}
    values = collections.defaultdict(set)
    for e in found:
        values[e["field"]].add(e["value"])
    both = sum(any(e["field"] == name and e["source"] != "descriptor" for e in found) for name in ours)
    if sorted(told["probes"]) != PROBES:
        sys.exit("inspect %s: these probes: %s" % (how, told["probes"]))
    print("inspect %s: %d fields by the descriptor, %d of them by the code too" % (how, len(ours), both))
    wrong = ["%s: %s" % (field, sorted(all_)) for field, all_ in values.items() if len(all_) > 1]
    if not told["complete"] or wrong or len(ours) < 60 or both < 38 or any(e["why"] != how for e in ours.values()):
        sys.exit("complete: %s; contradictions: %s; why: %s" % (told["complete"], wrong, {e["why"] for e in ours.values()}))


main()
