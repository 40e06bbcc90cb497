# SPDX-License-Identifier: MIT
"""An event of each thread, which record -p has, or one of each CPU, which -a has: what a context switch costs
with them, and what share of a load they see that comes at regular times."""
import contextlib
import statistics
import subprocess
import time

from figures import read_profile
from lab import Figure, Recorder, start, stop

LOADS = ((300, 600), (3000, 10101))  # us of each so many


def recorder(lab, target, rate):
    command = [lab.moonspy, "record", *target, "-r", rate, "-o", lab.path("profile.json"), "--force"]
    return Recorder(lab, command, "bpf_link")


def switch_cost(lab, seconds, who):
    """ns, of the half seconds with the recorder; who: a function of the pid, None for nobody."""
    target = start([lab.switches, "switch"], on=lab.target_cpu, stdout=subprocess.PIPE, text=True)
    try:
        with recorder(lab, who(target.pid), 99) if who else contextlib.nullcontext():
            end, said = time.monotonic() + seconds, []
            target.stdout.readline()  # begun before
            while time.monotonic() < end:
                said.append(float(target.stdout.readline()))
    finally:
        stop(target)
    return statistics.median(said)


def seen(lab, seconds, who, on, period):
    """Samples, in percent of what the load's CPU time stands for."""
    target = start([lab.switches, "periodic", on, period, seconds], on=lab.target_cpu, stdin=subprocess.PIPE,
                   stdout=subprocess.PIPE, text=True)
    try:
        with recorder(lab, who(target.pid), 999):
            used = float(target.communicate("go\n")[0])
    finally:
        stop(target)
    count = sum(s["count"] for s in read_profile(lab)["stacks"] if s["pid"] == target.pid)
    return 100 * count / (used * 999)


def switches(lab):
    kinds = (("without a profiler", None), ("record -p, 99 Hz", lambda pid: ["-p", pid]),
             ("record -a, 99 Hz", lambda pid: ["-a"]))
    rounds, seconds = (2, 3) if lab.quick else (5, 4)
    for name, who in kinds:
        yield Figure("a context switch, " + name, [switch_cost(lab, seconds, who) for _ in range(rounds)], "ns")
    for on, period in LOADS:
        for name, who in kinds[1:]:
            yield Figure("%d us of CPU time every %d, samples of it, %s at 999 Hz" % (on, period, name.split(",")[0]),
                         [seen(lab, 2 * seconds, who, on, period) for _ in range(rounds)], "%")
