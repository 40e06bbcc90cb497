# SPDX-License-Identifier: MIT
"""What the benchmarks measure with: figures, targets on one CPU, recorders on another."""
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))


class Missing(Exception):
    """Something that a figure needs is not there: it is left out, with this reason."""


class Figure:
    """Measured values of one kind; a budget is the most that their median may be."""

    def __init__(self, name, values, unit, budget=None, note=""):
        self.name, self.values, self.unit = name, sorted(values), unit
        self.budget, self.note = budget, note

    @property
    def median(self):
        return statistics.median(self.values)

    @property
    def verdict(self):
        return "" if self.budget is None else "OK" if self.median <= self.budget else "MISSED"

    def as_json(self):
        return {"name": self.name, "unit": self.unit, "median": self.median, "low": self.values[0],
                "high": self.values[-1], "values": len(self.values), "budget": self.budget,
                "verdict": self.verdict or None, "note": self.note or None}


def cpus():
    """CPUs for the target and for everything else; the same one if there is only one."""
    usable = sorted(os.sched_getaffinity(0))
    return {usable[-1]}, set(usable[:-1]) or {usable[-1]}


def need(program):
    path = shutil.which(program)
    if not path:
        raise Missing("%s is not installed" % program)
    return path


def start(command, on=None, **options):
    def pin():
        if on:
            os.sched_setaffinity(0, on)
    return subprocess.Popen(list(map(str, command)), preexec_fn=pin, **options)


def stop(process):
    if process.poll() is None:
        process.kill()
    process.wait()


class Busy:
    """bench/busy.lua on the target's CPU; what it says is read as it comes."""

    def __init__(self, lab, mode="jit", depth=40, *more):
        self.process = start([lab.luajit, os.path.join(HERE, "busy.lua"), mode, depth, *more], on=lab.target_cpu,
                             stdout=subprocess.PIPE, text=True)
        self.pid, self.said = self.process.pid, []
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            clock, work = line.split()
            self.said.append((float(clock), float(work)))

    def __enter__(self):
        deadline = time.monotonic() + 30
        while len(self.said) < 20:  # warmed up: traces are compiled
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Missing("busy.lua did not start")
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        stop(self.process)

    def rate(self, seconds):
        """Work a CPU second, over a while from now."""
        first = len(self.said)
        deadline = time.monotonic() + 20 * seconds
        time.sleep(seconds)
        while len(self.said) < first + 3:
            if time.monotonic() > deadline:
                raise Missing("the target got no CPU time")
            time.sleep(0.02)
        (c0, w0), (c1, w1) = self.said[first], self.said[-1]
        return (w1 - w0) / (c1 - c0)


def cpu_time(pid):
    """CPU seconds of a process: its clock, by the kernel's rule for their numbers."""
    return time.clock_gettime(~pid << 3 | 2)


class Recorder:
    """A profiler that attaches to a running process, on the other CPU; ends by SIGINT."""

    def __init__(self, lab, command, sign):
        self.begin = time.monotonic()
        self.log = open(lab.path("recorder.log"), "w+")
        self.process = start(command, on=lab.other_cpus, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        self.sign = sign

    def attached(self):
        try:
            folder = "/proc/%d/fd" % self.process.pid
            return any(self.sign in os.readlink("%s/%s" % (folder, fd)) for fd in os.listdir(folder))
        except OSError:
            return False

    def failed(self):
        self.log.seek(0)
        return Missing("%s: %s" % (os.path.basename(self.process.args[0]), self.log.read().strip()[-200:]))

    def __enter__(self):
        deadline = time.monotonic() + 60
        while not self.attached():
            if self.process.poll() is not None or time.monotonic() > deadline:
                stop(self.process)
                raise self.failed()
            time.sleep(0.01)
        self.since = time.monotonic()
        time.sleep(0.5)  # what it reads once it has attached is no part of its running
        return self

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self.since
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            stop(self.process)
        self.log.close()


class Lab:
    def __init__(self, build, quick):
        self.quick = quick
        self.moonspy = os.path.join(build, "src/cli/moonspy")
        self.output_bench = os.path.join(build, "bench/output-bench")
        self.switches = os.path.join(build, "bench/switches")
        self.luajit = need("luajit")
        self.target_cpu, self.other_cpus = cpus()
        self.folder = tempfile.mkdtemp(prefix="moonspy-bench.")
        os.environ["MOONSPY_CACHE_DIR"] = self.path("cache")
        for program in (self.moonspy, self.output_bench, self.switches):
            if not os.access(program, os.X_OK):
                raise Missing("%s is not built" % program)

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def recorder(self, pid, rate, out="profile.json"):
        return Recorder(self, [self.moonspy, "record", "-p", pid, "-r", rate, "-o", self.path(out), "--force"],
                        "bpf_link")

    def record(self, pid, rate, seconds, out="profile.json", on=None):
        """A recording of fixed length: what --stats says, as {text: value}."""
        command = [self.moonspy, "record", "-p", pid, "-r", rate, "-d", "%gs" % seconds, "-o", self.path(out),
                   "--force", "--stats"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = start(command, on=on or self.other_cpus, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        _, said = process.communicate(timeout=seconds + 120)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if process.returncode:
            raise Missing("moonspy record: " + said.strip())
        stats = {text: float(value.replace(",", "")) for value, text in re.findall(r"^ +([\d,.]+)  (.*)$", said, re.M)}
        stats["ms of CPU"] = 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return stats
