#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What moonspy costs, against its budgets and its peers: docs/performance.md.

usage: bench.py [--quick] [--json] [--build FOLDER] [PART...]

Parts: sample, slowdown, inside, switches, start, memory, dump, output. --quick: under three minutes, fewer rounds.
Needs root. Ends with 0; a budget that is missed is said in the table, and is 1 with --strict;
77: cannot run here.
"""
import argparse
import json
import os
import platform
import sys

import figures
import peers
import switches
from lab import HERE, Figure, Lab, Missing

PARTS = {"sample": figures.sample_cost, "slowdown": peers.slowdown, "inside": peers.inside, "switches": switches.switches,
         "start": figures.first_sample, "memory": figures.memory, "dump": figures.dump, "output": figures.output}


def load():
    return "%.1f" % os.getloadavg()[0]


def machine():
    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {"cpu": names[0] if names else platform.machine(), "cpus": len(os.sched_getaffinity(0)),
            "kernel": platform.release(), "pmu": os.path.exists("/sys/bus/event_source/devices/cpu"),
            "load at start": load()}


def number(value):
    return "%.0f" % value if abs(value) >= 1000 else "%.1f" % value if abs(value) >= 10 else "%.2f" % value


def row(figure):
    spread = "%s .. %s" % (number(figure.values[0]), number(figure.values[-1])) if len(figure.values) > 1 else ""
    budget = "" if figure.budget is None else "%s  %.2f" % (number(figure.budget), figure.median / figure.budget)
    return "%-66s %8s %-5s %18s %11s %s" % (figure.name, number(figure.median), figure.unit, spread, budget,
                                            figure.verdict)


def measure(lab, names, said):
    """Figures of the parts, and reasons why some are missing."""
    done, missing = [], []
    for name in names:
        try:
            for figure in PARTS[name](lab):
                if isinstance(figure, Figure):
                    done.append(figure)
                    said(row(figure).rstrip())
                else:
                    missing.append(figure)
        except Missing as reason:
            missing.append("%s: %s" % (name, reason))
    for reason in missing:
        said("left out: " + reason)
    return done, missing


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--build", default=os.path.join(os.path.dirname(HERE), "build"))
    parser.add_argument("parts", nargs="*")
    options = parser.parse_args()
    if set(options.parts) - set(PARTS):
        parser.error("parts are " + ", ".join(PARTS))
    if os.geteuid():
        print("SKIP: only root can record and count what BPF costs")
        return 77
    here = machine()
    said = (lambda text: None) if options.json else (lambda text: print(text, flush=True))
    said("%(cpu)s, %(cpus)d CPUs, Linux %(kernel)s" % here + ", hardware counters: %s, load %s" %
         ("yes" if here["pmu"] else "no", here["load at start"]))
    said("%-66s %8s %-5s %18s %11s" % ("", "median", "", "low .. high", "budget  of"))
    try:
        lab = Lab(os.path.abspath(options.build), options.quick)
    except Missing as reason:
        print("SKIP: %s" % reason)
        return 77
    try:
        done, missing = measure(lab, options.parts or list(PARTS), said)
    finally:
        lab.close()
    here["load at end"] = load()
    said("load at the end: %s" % here["load at end"])
    if options.json:
        json.dump({"machine": here, "quick": options.quick, "figures": [f.as_json() for f in done],
                   "left_out": missing}, sys.stdout, indent=1)
        print()
    return 1 if options.strict and any(f.verdict == "MISSED" for f in done) else 0


if __name__ == "__main__":
    sys.exit(main())
