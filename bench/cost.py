#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What recording costs, against the budgets of the design.

usage: cost.py [--moonspy FILE] [--luajit FILE] [--rounds N] [--seconds S] [depth] [slowdown] [start]
  depth     BPF time of a sample by depth of the stack
  slowdown  work that a target gets done in the same CPU time, with and without a recording, in turn
  start     from start of moonspy to its first sample, process with 60 mapped files, cold and warm
Needs root. Prints tables; the status says whether every figure is within its budget (0), or not (1);
77: cannot run here.
"""
import argparse
import glob
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MIXED = os.path.join(ROOT, "tests", "workloads", "mixed.lua")
DEPTHS = (10, 40, 200, 600)
BUDGET_SAMPLE_US = 15        # at 40 mixed frames
BUDGET_SLOWDOWN = {99: 0.2, 999: 2.0}  # percent
BUDGET_START = {"cold": 0.3, "warm": 0.05}
MAPPED_FILES = 60


class Bench:
    def __init__(self, options):
        self.moonspy, self.luajit = options.moonspy, options.luajit
        self.rounds, self.seconds = options.rounds, options.seconds
        self.folder = tempfile.mkdtemp(prefix="moonspy-cost.")
        self.over = False

    def path(self, name):
        return os.path.join(self.folder, name)

    def record(self, target, rate, seconds, environment=None, extra=()):
        """Records a pid; the profile as json, and how long moonspy ran."""
        out = self.path("profile.json")
        begin = time.monotonic()
        done = subprocess.run(
            [self.moonspy, "record", "-p", str(target), "-r", str(rate), "-d", "%gs" % seconds, "-f", "json",
             "-o", out, "--force", "-q", *extra],
            capture_output=True, text=True, timeout=seconds + 60, env=environment)
        took = time.monotonic() - begin
        if done.returncode:
            raise SystemExit("cost.py: moonspy record ended with %d:\n%s" % (done.returncode, done.stderr))
        with open(out) as file:
            return json.load(file), took

    def lua(self, *arguments):
        return subprocess.Popen([self.luajit, MIXED, *map(str, arguments)], stdout=subprocess.PIPE, text=True)

    def row(self, name, value, unit, budget=None, noise=0):
        if budget is None:
            print("%-46s %10.3f %-7s" % (name, value, unit))
            return
        verdict = "ok" if value <= budget else "OVER"
        if abs(value - budget) < noise:
            verdict = "unclear: noise is %.2f" % noise
        self.over = self.over or verdict == "OVER"
        print("%-46s %10.3f %-7s budget %7.2f  ratio %5.2f  %s" % (name, value, unit, budget, value / budget, verdict))


def typical_depth(profile):
    depths = [len(s["frames"]) for s in profile["stacks"] for _ in range(s["count"])]
    return statistics.median(depths)


def bench_depth(bench):
    """Mean BPF time of a sample; the sysctl that counts it is switched on by moonspy, or by us."""
    stats, before = "/proc/sys/kernel/bpf_stats_enabled", None
    if os.access(stats, os.W_OK):
        with open(stats) as file:
            before = file.read()
        with open(stats, "w") as file:
            file.write("1")
    try:
        for mode in ("nojit", "jit"):
            for depth in DEPTHS:
                costs, frames = [], 0
                for _ in range(max(bench.rounds // 2, 1)):
                    target = bench.lua(bench.seconds + 5, mode, depth)
                    time.sleep(0.3)
                    profile, _ = bench.record(target.pid, 999, bench.seconds, extra=["--stats"])
                    target.kill()
                    target.wait()
                    costs.append((profile["quality"].get("bpf_ns_per_sample") or 0) / 1000)
                    frames = typical_depth(profile)
                bench.row("a sample in BPF, %s, %d frames" % (mode, frames), statistics.median(costs), "us",
                          BUDGET_SAMPLE_US if depth == 40 else None)
    finally:
        if before is not None:
            with open(stats, "w") as file:
                file.write(before)


def work_done(bench, mode, rate):
    """Rounds of work a CPU second; rate 0: without a recording. The recorder runs on another CPU if there is one."""
    command = [bench.luajit, MIXED, str(bench.seconds), mode, "40"]
    if rate:  # started by moonspy, so that all of it is recorded
        command = [bench.moonspy, "record", "-r", str(rate), "-f", "json", "-q", "--force",
                   "-o", bench.path("slow.json"), "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=bench.seconds * 10 + 60)
    if done.returncode:
        raise SystemExit("cost.py: a run ended with %d:\n%s" % (done.returncode, done.stderr))
    out = done.stdout
    return float(re.search(r"work (\d+)", out).group(1)) / bench.seconds


def bench_slowdown(bench):
    for mode in ("nojit", "jit"):
        done = {rate: [] for rate in (0, 99, 999)}
        for i in range(bench.rounds):
            order = [0, 99, 999] if i % 2 else [999, 99, 0]
            for rate in order:
                done[rate].append(work_done(bench, mode, rate))
        base = statistics.median(done[0])
        middle = sorted(abs(x - base) for x in done[0])
        noise = 100 * middle[len(middle) // 2] / base  # half of the runs without a recording lie within
        bench.row("noise of runs without a recording, %s" % mode, noise, "%")
        for rate in (99, 999):
            # Pairs of one round have met the same machine.
            slow = statistics.median(100 * (1 - b / a) for a, b in zip(done[0], done[rate]))
            bench.row("slowdown at %d Hz, %s" % (rate, mode), slow, "%", BUDGET_SLOWDOWN[rate], noise)


def mapped_files(pid):
    with open("/proc/%d/maps" % pid) as file:
        return {line.split(None, 5)[5] for line in file if line.count("/") and len(line.split(None, 5)) > 5}


def many_files_target():
    """A busy process with at least MAPPED_FILES files mapped."""
    libraries = sorted(glob.glob("/usr/lib/x86_64-linux-gnu/lib*.so.*"))[:400]
    code = ("import ctypes, sys\n"
            "def count():\n"
            "    return len({l.split()[-1] for l in open('/proc/self/maps') if '.so' in l})\n"
            "for path in sys.argv[2:]:\n"
            "    if count() >= int(sys.argv[1]): break\n"
            "    try: ctypes.CDLL(path)\n"
            "    except OSError: pass\n"
            "print('ready', flush=True)\n"
            "while True: pass\n")
    target = subprocess.Popen(["/usr/bin/python3", "-c", code, str(MAPPED_FILES), *libraries],
                              stdout=subprocess.PIPE, text=True)
    target.stdout.readline()
    return target


def bench_start(bench):
    """Upper bounds: the whole run of a recording of 200 ms, less the 200 ms."""
    length = 0.2
    target = many_files_target()
    files = len(mapped_files(target.pid))
    try:
        for kind in ("cold", "warm"):
            took = []
            for i in range(bench.rounds):
                cache = bench.path("cache-%s" % (i if kind == "cold" else "warm"))
                environment = dict(os.environ, XDG_CACHE_HOME=cache, MOONSPY_CACHE_DIR=cache)
                if kind == "warm" and i == 0:
                    bench.record(target.pid, 999, length, environment)
                profile, seconds = bench.record(target.pid, 999, length, environment)
                if profile["quality"]["samples"] > 0:
                    took.append(seconds - length)
            bench.row("start to end less %g s, %%d files, %%s" % length % (files, kind), statistics.median(took), "s",
                      BUDGET_START[kind])
    finally:
        target.kill()
        target.wait()


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("--moonspy", default=os.environ.get("MOONSPY", os.path.join(ROOT, "build/src/cli/moonspy")))
    parser.add_argument("--luajit", default=os.environ.get("LUAJIT", "luajit"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("what", nargs="*")
    options = parser.parse_args()
    parts = {"depth": bench_depth, "slowdown": bench_slowdown, "start": bench_start}
    if set(options.what) - set(parts):
        parser.error("depth, slowdown, start")
    if os.geteuid() or not os.access(options.moonspy, os.X_OK):
        print("SKIP: needs root and a built moonspy")
        return 77
    bench = Bench(options)
    try:
        for name in options.what or parts:
            parts[name](bench)
    finally:
        for name in glob.glob(bench.path("*.json")):
            os.unlink(name)
        subprocess.run(["rm", "-rf", bench.folder], check=False)
    return 1 if bench.over else 0


if __name__ == "__main__":
    sys.exit(main())
