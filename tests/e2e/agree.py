#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: agree.py NAME A B STOPS: two profiles (json) of the same process, by bpf and by ptrace.

A stack of one that is expected in the other at least FEW times must be there, and the shares of each
function must be the same but for what chance does to so many samples. A stop counts for several samples
where the machine is busy or the rate went down, one for more than another: chance does then what it does
to half as many equal ones. Of a stack, kernel frames and
whether it is compiled are left out.
"""
import collections
import json
import math
import sys

FEW = 15        # never in the other by chance: e^-15
DEVIATIONS = 5  # of a share
SLACK = 0.03    # the two do not begin and end at the same moment


def read(path):
    stacks = collections.Counter()
    for stack in json.load(open(path))["stacks"]:
        frames = [f for f in stack["frames"] if f["kind"] not in ("kernel", "state")]
        if frames and frames[-1]["kind"] == "error":
            continue
        names = tuple("%s (%s)" % (f["name"], f["file"] or f["object"]) for f in frames)
        stacks[names] += stack["count"]
    return stacks


def shares(stacks):
    total = collections.Counter()
    for names, n in stacks.items():
        for name in set(names):
            total[name] += n
    return total


def missing(a, each_a, b, each_b):
    """Stacks of a that b should have, and has not. So many samples each stop of them stands for."""
    factor = sum(b.values()) / sum(a.values())
    return [(n, names) for names, n in a.items()
            if names not in b and n / each_a >= FEW and n * factor / each_b >= FEW]


def main():
    name, a, b = sys.argv[1], read(sys.argv[2]), read(sys.argv[3])
    na, nb, stops = sum(a.values()), sum(b.values()), int(sys.argv[4].replace(",", ""))
    if min(na, stops) < 50:
        print("%s: too few samples: %d, and of %d stops" % (name, na, stops))
        return 1
    each, bad = max(1, nb / stops), 0
    for which, lost in (("bpf", missing(a, 1, b, each)), ("ptrace", missing(b, each, a, 1))):
        for n, names in sorted(lost, reverse=True)[:5]:
            print("%s: only %s has, %d times: %s" % (name, which, n, ";".join(names)))
        bad += len(lost)
    sa, sb, worst = shares(a), shares(b), 0
    for function in set(sa) | set(sb):
        pa, pb = sa[function] / na, sb[function] / nb
        p = (sa[function] + sb[function]) / (na + nb)
        room = DEVIATIONS * math.sqrt(p * (1 - p) * (1 / na + 2 / stops)) + SLACK
        worst = max(worst, abs(pa - pb))
        if abs(pa - pb) > room:
            print("%s: %s: %.1f %% and %.1f %%, at most %.1f apart" % (name, function, 100 * pa, 100 * pb, 100 * room))
            bad += 1
    print("%s: %d samples, and %d of %d stops, %d and %d stacks, %d in both; shares differ by %.1f points at most" %
          (name, na, nb, stops, len(a), len(b), len(set(a) & set(b)), 100 * worst))
    return 1 if bad else 0


sys.exit(main())
