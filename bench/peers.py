# SPDX-License-Identifier: MIT
"""Slowdown of a target by moonspy and by others, in turn in one run; what each costs and shows."""
import json
import os
import re
import shutil
import statistics
import subprocess

from lab import Busy, Figure, Missing, Recorder, cpu_time

SLOWDOWN = {99: 0.2, 999: 2.0, 9999: None}  # percent, by rate
DEPTH = 30  # of busy.lua: stacks of 40 frames
LUA_FUNCTIONS = re.compile(r"\b(bottom|stay|level|via_gsub|via_coroutine)\b")


class Profiler:
    """One way to record; what was seen of it so far."""

    def __init__(self, name, budget=None):
        self.name, self.budget = name, budget
        self.slow, self.cpu, self.bytes = [], [], []
        self.lua_share = None  # percent of the samples

    def figures(self, mode):
        yield Figure("slowdown by %s, %s" % (self.name, mode), self.slow, "%", self.budget)

    def costs(self):
        if self.cpu:
            yield Figure("CPU of the recorder, %s" % self.name, self.cpu, "ms/s")
            yield Figure("written, %s" % self.name, self.bytes, "KB/s")
        if self.lua_share is not None:
            yield Figure("samples that show a Lua function, %s" % self.name, [self.lua_share], "%")


class Moonspy(Profiler):
    def __init__(self, rate):
        super().__init__("moonspy %s Hz" % format(rate, ","), SLOWDOWN[rate])
        self.rate = rate

    def start(self, lab, pid):
        return lab.recorder(pid, self.rate, "moonspy.json")

    def size(self, lab):
        return os.path.getsize(lab.path("moonspy.json"))

    def look(self, lab):
        with open(lab.path("moonspy.json")) as file:
            stacks = json.load(file)["stacks"]
        lua = sum(s["count"] for s in stacks
                  if any(f["kind"] in ("lua", "jit", "inlined") and LUA_FUNCTIONS.search(f["name"]) for f in s["frames"]))
        self.lua_share = 100 * lua / sum(s["count"] for s in stacks)


class Perf(Profiler):
    def __init__(self, name, *options):
        super().__init__(name)
        self.options = options

    def start(self, lab, pid):
        perf = shutil.which("perf")
        if not perf:
            raise Missing("perf is not installed (linux-perf)")
        return Recorder(lab, [perf, "record", "-q", "-e", "cpu-clock", "-F", 999, *self.options, "-p", pid,
                              "-o", lab.path("perf.data")], "perf_event")

    def size(self, lab):
        return os.path.getsize(lab.path("perf.data"))

    def look(self, lab):
        """Of the first samples: to unwind copies of stacks takes perf long."""
        script = subprocess.Popen(["perf", "script", "--no-inline", "-i", lab.path("perf.data"), "-F", "ip,sym"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        samples = lua = 0
        shows = False
        for line in script.stdout:
            shows = shows or bool(LUA_FUNCTIONS.search(line))
            if not line.strip():
                samples, lua, shows = samples + 1, lua + shows, False
                if samples == 300:
                    break
        script.kill()
        script.wait()
        if samples:
            self.lua_share = 100 * lua / samples


def one_window(lab, busy, profiler, seconds):
    with profiler.start(lab, busy.pid) as recorder:
        before = cpu_time(recorder.process.pid)
        work = busy.rate(seconds)
        profiler.cpu.append(1000 * (cpu_time(recorder.process.pid) - before) / seconds)
    profiler.bytes.append(profiler.size(lab) / 1000 / recorder.seconds)
    if profiler.lua_share is None:
        profiler.look(lab)
    return work


def slowdowns(lab, busy, profilers, rounds, seconds, skipped):
    """Each window with a profiler is held against those without, before and after it."""
    noise, plain = [], busy.rate(seconds)
    for i in range(rounds):
        for profiler in profilers if i % 2 else profilers[::-1]:
            if profiler.name in skipped:
                continue
            try:
                work = one_window(lab, busy, profiler, seconds)
            except Missing as reason:
                skipped[profiler.name] = str(reason)
                continue
            after = busy.rate(seconds)
            profiler.slow.append(100 * (1 - 2 * work / (plain + after)))
            noise.append(100 * abs(after - plain) / plain)
            plain = after
    return noise


def own_profiler(lab, mode, rounds, seconds, *how):
    """LuaJIT's -jp=fl at 1 ms, or how; it is in the process, so processes with and without it take turns."""
    how = how or ("profiled",)

    def rate(*profiled):
        with Busy(lab, mode, DEPTH, *profiled) as busy:
            return busy.rate(seconds)

    slow, plain = [], rate()
    for _ in range(rounds):
        work, after = rate(*how), rate()
        slow.append(100 * (1 - 2 * work / (plain + after)))
        plain = after
    return slow


def inside(lab):
    """The in-process profiler, its thread and file with it; beside LuaJIT's own."""
    modules = os.path.join(os.path.dirname(lab.output_bench), "../src/inprocess")
    if not os.path.exists(os.path.join(modules, "sysprof.so")):
        raise Missing("the in-process profiler is not built")
    os.symlink(os.path.abspath(modules), lab.path("moonspy"))
    os.environ["LUA_CPATH"], os.environ["LUA_PATH"] = lab.path("?.so;;"), lab.path("?.lua;;")
    rounds, seconds = (3, 1) if lab.quick else (6, 2)
    for mode in ("jit",) if lab.quick else ("jit", "nojit"):
        for interval, budget in ((10, 1), (1, 5)):
            slow = own_profiler(lab, mode, rounds, seconds, "sysprof", interval, lab.path("sysprof.bin"))
            yield Figure("slowdown by moonspy.sysprof, mode C, %d ms, %s" % (interval, mode), slow, "%", budget)
        yield Figure("slowdown by LuaJIT's -jp=fl, 1 ms, %s" % mode, own_profiler(lab, mode, rounds, seconds), "%")


def slowdown(lab):
    rounds, seconds = (3, 1) if lab.quick else (6, 2)
    skipped = {}
    for mode in ("jit",) if lab.quick else ("jit", "nojit"):
        profilers = [*map(Moonspy, SLOWDOWN)]
        if mode == "jit":
            profilers += [Perf("perf record without stacks, 999 Hz"), Perf("perf record -g, 999 Hz", "-g"),
                          Perf("perf record --call-graph dwarf, 999 Hz", "--call-graph", "dwarf")]
        with Busy(lab, mode, DEPTH) as busy:
            noise = slowdowns(lab, busy, profilers, rounds, seconds, skipped)
        yield Figure("noise: windows without a profiler, one after the other, %s" % mode, noise, "%")
        for profiler in profilers:
            if profiler.slow:
                yield from profiler.figures(mode)
        yield from per_sample(profilers, mode)
        jp = own_profiler(lab, mode, rounds, seconds)
        if jp:
            yield Figure("slowdown by LuaJIT's -jp=fl, 1,000 Hz, %s" % mode, jp, "%")
        else:
            skipped["LuaJIT's -jp"] = "it did not run"
        if mode == "jit":
            for profiler in profilers:
                if "9,999" not in profiler.name:
                    yield from profiler.costs()
            yield from ratios(profilers, jp)
    for name, reason in skipped.items():
        yield "%s: %s" % (name, reason)


def per_sample(profilers, mode):
    """What a sample takes from the target, interrupt and all: best seen where there are many."""
    for p in profilers:
        if isinstance(p, Moonspy) and p.rate == max(SLOWDOWN) and p.slow:
            yield Figure("a sample in all, by the slowdown at %s Hz, %s" % (format(p.rate, ","), mode),
                         [1e6 * slow / 100 / p.rate for slow in p.slow], "us")


def ratios(profilers, jp):
    ours = next(p for p in profilers if p.name == "moonspy 999 Hz")
    for p in profilers:
        if isinstance(p, Perf) and p.options and p.slow and ours.slow:
            yield ratio("written", p.name, p.bytes, ours.bytes)
            yield ratio("CPU of the recorder", p.name, p.cpu, ours.cpu)
            yield ratio("slowdown", p.name, p.slow, ours.slow)
    if jp and ours.slow and statistics.median(jp) > 0:  # else it drowns in the noise
        yield ratio("slowdown", "LuaJIT's -jp=fl", jp, ours.slow)


def ratio(what, name, theirs, ours):
    mine = statistics.median(ours)
    return Figure("%s, %s to moonspy at 999 Hz" % (what, name), [statistics.median(theirs) / mine] if mine > 0 else [0],
                  "times")
