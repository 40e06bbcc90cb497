# SPDX-License-Identifier: MIT
"""moonspy's own figures; each function yields them. Budgets are those of the design."""
import glob
import json
import os
import re
import statistics
import subprocess
import time

from lab import HERE, Busy, Figure, Missing, need, start, stop

# Frames in the stack: DEPTH of busy.lua that gives about as many.
DEPTHS = {10: 0, 20: 7, 40: 30, 100: 96, 400: 420, 1000: 1000}
SAMPLE_MEDIAN_US, SAMPLE_P99_US = 15, 50  # at 40 frames
FILES, LARGEST = 60, 8 << 20  # mapped; bytes of a library (libLLVM alone has 110 MB)
START_MS = {"cold": 300, "warm": 50}
MEMORY_MIB = 64
DUMP_THREADS, DUMP_US = 10, 2000
OUTPUT_S = 2


def read_profile(lab):
    with open(lab.path("profile.json")) as file:
        return json.load(file)


def stack_depth(profile):
    return int(statistics.median(len(s["frames"]) for s in profile["stacks"] for _ in range(s["count"])))


def sample_cost(lab):
    """The program measures itself, sample by sample (histogram), so there is more than a mean."""
    seconds, rounds = (1.5, 1) if lab.quick else (3, 5)
    for mode in ("nojit", "jit"):
        for wanted, depth in DEPTHS.items():
            median, p99, frames = [], [], 0
            if mode == "jit" and wanted != 40:
                continue
            for _ in range(rounds):
                with Busy(lab, mode, depth) as busy:
                    lab.record(busy.pid, 999, seconds)
                profile = read_profile(lab)
                median.append(profile["quality"]["bpf_ns_median"] / 1000)
                p99.append(profile["quality"]["bpf_ns_p99"] / 1000)
                frames = stack_depth(profile)
            note = "%d frames, %s" % (frames, "compiled" if mode == "jit" else "interpreted")
            held = wanted == 40
            yield Figure("a sample in BPF, median: " + note, median, "us", SAMPLE_MEDIAN_US if held else None)
            yield Figure("a sample in BPF, 99th percentile: " + note, p99, "us", SAMPLE_P99_US if held else None)


def start_target():
    libraries = [path for path in sorted(glob.glob("/usr/lib/*-linux-gnu/lib*.so.*"))
                 if os.path.getsize(path) <= LARGEST]
    target = start(["/usr/bin/python3", os.path.join(HERE, "many_files.py"), FILES, *libraries],
                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    said = target.stdout.readline()
    if not said.startswith("ready"):
        stop(target)
        raise Missing("python3-lupa is not installed")
    return target, int(said.split()[1])


def first_sample(lab):
    """From the start of record to the time that the first sample carries, as --stats has it."""
    phases = {"ms to the first sample": "start to first sample", "ms until the tables were ready": "of it: tables",
              "ms until the engine was ready": "of it, beside them: BPF program loaded",
              "ms of CPU": "CPU time of that run"}
    rounds = 3 if lab.quick else 15
    target, files = start_target()
    try:
        for kind, budget in START_MS.items():
            took = {text: [] for text in phases}
            if kind == "warm":
                lab.record(target.pid, 999, 0.1)
            for _ in range(rounds):
                if kind == "cold":
                    subprocess.run(["rm", "-rf", os.environ["MOONSPY_CACHE_DIR"]], check=True)
                said = lab.record(target.pid, 999, 0.2, on=os.sched_getaffinity(0))
                for text in phases:
                    took[text].append(said[text])
            for text, name in phases.items():
                yield Figure("%s, %s, %d files" % (name, kind, files), took[text], "ms",
                             budget if text == "ms to the first sample" else None)
    finally:
        stop(target)


def map_memory(pid):
    """MiB of a process's BPF maps, by what the kernel charges for each."""
    maps = {}
    for fd in os.listdir("/proc/%d/fdinfo" % pid):
        try:
            with open("/proc/%d/fdinfo/%s" % (pid, fd)) as file:
                said = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
        except OSError:
            continue
        if "map_id" in said:
            maps[said["map_id"]] = int(said["memlock"])
    return sum(maps.values()) / 2**20


def memory(lab):
    seconds = 10 if lab.quick else 60
    truth = os.path.join(os.path.dirname(HERE), "tests", "workloads", "truth.lua")
    target = start([lab.luajit, truth, seconds + 60, "jit"], on=lab.target_cpu, stdout=subprocess.DEVNULL)
    try:
        with lab.recorder(target.pid, 999) as recorder:
            time.sleep(seconds)
            with open("/proc/%d/status" % recorder.process.pid) as file:
                peak = int(re.search(r"VmHWM:\s+(\d+)", file.read()).group(1)) / 1024
            maps = map_memory(recorder.process.pid)
    finally:
        stop(target)
    what = "%d s at 999 Hz" % seconds
    yield Figure("memory of record with its BPF maps, " + what, [peak + maps], "MiB", MEMORY_MIB)
    yield Figure("of it: the process at its peak", [peak], "MiB")
    yield Figure("of it: BPF maps", [maps], "MiB")


def dump(lab):
    """How long the process stood still, as dump -j says."""
    rounds = 7 if lab.quick else 30
    script = os.path.join(HERE, "threads.lua")
    target = start([need("sysbench"), script, "--threads=%d" % DUMP_THREADS, "--time=300", "--events=0", "run"],
                   stdout=subprocess.DEVNULL)
    try:
        time.sleep(1.5)
        stopped, frames = [], []
        for _ in range(rounds):
            done = subprocess.run([lab.moonspy, "dump", "-p", str(target.pid), "-j"], capture_output=True, text=True,
                                  timeout=60)
            if done.returncode:
                raise Missing("moonspy dump: " + done.stderr.strip())
            result = json.loads(done.stdout)
            stopped.append(result["stopped_us"])
            depths = sorted(len(t["stack"]) for t in result["threads"])
            frames.append(statistics.median(depths[-DUMP_THREADS:]))
    finally:
        stop(target)
    yield Figure("dump: the process stands still, %d threads of %d frames" %
                 (DUMP_THREADS, statistics.median(frames)), stopped, "us", DUMP_US)


def output(lab):
    """A million samples, 50,000 distinct stacks; CPU time, which other work disturbs less."""
    rounds = 1 if lab.quick else 3
    times = {}
    for _ in range(rounds):
        done = subprocess.run([lab.output_bench], capture_output=True, text=True, timeout=300)
        if not done.stdout:
            raise Missing("output-bench: " + done.stderr.strip())
        for name, cpu in re.findall(r"^(\S.*?) +([\d.]+) s CPU", done.stdout, re.M):
            times.setdefault(name, []).append(float(cpu))
    for name, values in times.items():
        yield Figure("a million samples, " + name, values, "s CPU", OUTPUT_S)
