#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: record.py MOONSPY LUAJIT LIBRARY KIT_COMES: record --probes, of a LuaJIT with the VM descriptor (LIBRARY, which LUAJIT loads).

What a profile says of its traces are the VM's own counts; what a breakpoint was written over is back when the recording is over;
traces are read as they are made. KIT_COMES LIBRARY makes and closes VMs. A LuaJIT without probes is recorded as ever, and it is said.
Exit 77: there is no BPF here."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HEARD = {"vm_created", "vm_closed", "heartbeat", "trace_stop", "trace_abort", "trace_flush"}
PLACE = re.compile(r"Provider: luajit\s+Name: (\w+)\s+Location: (\w+)")
REASONS = {"7": "aborts: not yet implemented: bytecode", "8": "aborts: leaving loop in root trace", "9": "aborts: inner loop in root trace"}
EPOLL_WAIT = {"x86_64": ("232", "281"), "aarch64": ("22",)}
ROUNDS = 300
VMS = 40
GONE = "made traces that were gone before they were read"


def until(condition, what, recorder):
    end = time.monotonic() + 120
    while not condition():
        if recorder.poll() is not None or time.monotonic() > end:
            sys.exit("%s:\n%s" % (what, recorder.stderr.read() if recorder.poll() is not None else "waited two minutes"))
        time.sleep(0.01)


class Program:
    """What is recorded. It says that it is ready, and then does something for each line."""

    def __init__(self, command, library):
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      env=dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(library)))
        assert self.child.stdout.readline() == "ready\n"
        real = os.path.realpath(library)
        with open("/proc/%d/maps" % self.child.pid, encoding="utf-8") as maps:
            lines = [line.split(maxsplit=5) for line in maps]
        mapped = [(*(int(word, 16) for word in words[0].split("-")), words) for words in lines
                  if len(words) > 5 and os.path.realpath(words[5].strip()) == real]
        self.base = mapped[0][0]
        self.text = [(start, end) for start, end, words in mapped if "x" in words[1]]
        self.before = self.code()

    def code(self):
        with open("/proc/%d/mem" % self.child.pid, "rb") as memory:
            return [os.pread(memory.fileno(), end - start, start) for start, end in self.text]

    def broken_at(self, places):
        with open("/proc/%d/mem" % self.child.pid, "rb") as memory:
            return all(os.pread(memory.fileno(), 1, self.base + place) == b"\xcc" for place in places)

    def do(self, line):
        """Sums by what the program says of them."""
        self.child.stdin.write("%s\n" % line)
        self.child.stdin.flush()
        said = {}
        while "done" not in said:
            count, what = self.child.stdout.readline().strip().split(maxsplit=1)
            said[what] = float(count)
        return said

    def end(self):
        self.child.kill()
        self.child.wait()


def waits(recorder):
    """Between samples, in epoll_wait: all is attached. A breakpoint is there before anybody hears it."""
    with open("/proc/%d/syscall" % recorder.pid, encoding="ascii") as file:
        return file.read().split()[0] in EPOLL_WAIT[os.uname().machine]


def record(moonspy, program, folder, *options):
    path = os.path.join(folder, "profile.json")
    return path, subprocess.Popen([moonspy, "record", "-r", "999", "-p", str(program.child.pid), "-o", path, "--force", *options],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def ended(path, recorder):
    recorder.send_signal(signal.SIGINT)
    said = recorder.communicate()[1]
    if "BPF cannot be used" in said:
        print("record --probes: %s" % said.strip())
        sys.exit(77)
    if recorder.returncode:
        sys.exit("record: %d\n%s" % (recorder.returncode, said))
    with open(path, encoding="utf-8") as file:
        return json.load(file), said


def events_of(profile):
    sums = {}
    for row in profile["events"]:
        sums[row["event"]] = sums.get(row["event"], 0) + row["count"]
    return sums


def heard(moonspy, program, places, folder, line):
    """What the program and the profile say of what it did for a line."""
    path, recorder = record(moonspy, program, folder, "--probes")
    until(lambda: program.broken_at(places) and waits(recorder), "nobody listens", recorder)
    own = program.do(line)
    profile, said = ended(path, recorder)
    if program.code() != program.before:
        sys.exit("the program's code is not what it was")
    if "probes were not" in said:
        sys.exit(said)
    return own, profile, events_of(profile)


def check(wanted, events):
    for event, count in wanted.items():
        if events.get(event, 0) != count:
            sys.exit("%s: %s, the VM says %d: %s" % (event, events.get(event, 0), count, events))


def traces(moonspy, command, library, places, folder):
    program = Program(command, library)
    alone = program.do(ROUNDS)["seconds"]
    own, _, events = heard(moonspy, program, places, folder, ROUNDS)
    program.end()
    aborts = {key.split()[1]: n for key, n in own.items() if key.startswith("abort")}
    check({"traces made": own["stop"], "flushes of all traces": own["flush"], "probe events lost": 0,
           "events of what was not proved to be a VM": 0}, events)
    check({REASONS[reason]: n for reason, n in aborts.items() if reason in REASONS}, events)
    found = sorted(n for event, n in events.items() if event.startswith("aborts: "))
    if found != sorted(aborts.values()):
        sys.exit("aborts: %s, the VM says %s" % (found, aborts))
    if events.get(GONE, 0) >= own["stop"]:  # the last one was still there when the recording ended
        sys.exit("no trace was read as it was made")
    hits = sum(n for event, n in events.items() if event != GONE)
    print("record --probes: %d traces made, %d aborted, %d flushes of all, as the VM says; %d of the traces were gone before they were read" % (
        own["stop"], sum(aborts.values()), own["flush"], events.get(GONE, 0)))
    print("record --probes: %.2f s of CPU time, %.2f s without: %.1f us for each of %d events" % (
        own["seconds"], alone, 1e6 * (own["seconds"] - alone) / hits, hits))


def storm(moonspy, command, library, folder):
    """Samples of traces that were gone, of a program that is started by moonspy: a figure, it depends on the machine."""
    for options in ([], ["--probes"]):
        path = os.path.join(folder, "storm.json")
        subprocess.run([moonspy, "record", "-q", "-r", "999", "-o", path, "--force", *options, "--", *command], text=True, check=True,
                       input="%d\n" % (4 * ROUNDS), stdout=subprocess.DEVNULL,
                       env=dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(library)))
        with open(path, encoding="utf-8") as file:
            quality = json.load(file)["quality"]
        print("record %s: of %d samples %d in a trace that was gone before it was read" % (
            " ".join(options) or "without", quality["samples"], quality["errors"].get("trace gone before it was read", 0)))


def comes_and_goes(moonspy, command, library, places, folder):
    program = Program(command, library)
    own, _, events = heard(moonspy, program, places, folder, VMS)
    program.end()
    # One that was closed before it could be proved is counted, but not as a VM, and so is what is none; the last one is still there.
    created, closed, other = (events.get(event, 0) for event in ("VMs created", "VMs closed", "events of what was not proved to be a VM"))
    if created + closed + other != own["made"] + own["closed"] + own["lies"] or not 0 < created <= own["made"] or other < own["lies"]:
        sys.exit("%s: %s" % (own, events))
    print("record --probes: of %d VMs, %d told of and proved, %d closed; %d lies refused" % (own["made"], created, closed, own["lies"]))


def without(moonspy, folder):
    path = os.path.join(folder, "profile.json")
    done = subprocess.run([moonspy, "record", "-o", path, "--force", "--probes", "--", "luajit", "-e", "for i = 1, 3e8 do end"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
    if "the VM's probes were not all heard: no LuaJIT there has any" not in done.stderr:
        sys.exit("not said that there are no probes:\n%s" % done.stderr)


def main():
    if os.geteuid():
        print("record --probes: not root, whom the kernel does not let listen")
        sys.exit(77)
    moonspy, luajit, library, comes = (os.path.abspath(word) for word in sys.argv[1:])
    notes = subprocess.run(["readelf", "-nW", library], stdout=subprocess.PIPE, text=True, check=True).stdout
    # Heartbeats are listened to for a moment only.
    places = [int(location, 16) for name, location in PLACE.findall(notes) if name in HEARD - {"heartbeat"}]
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "record.lua")
    with tempfile.TemporaryDirectory() as folder:
        traces(moonspy, [luajit, script], library, places, folder)
        storm(moonspy, [luajit, script], library, folder)
        comes_and_goes(moonspy, [comes, library], library, places, folder)
        if shutil.which("luajit"):
            without(moonspy, folder)


main()
