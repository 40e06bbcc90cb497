#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: record.py MOONSPY LUAJIT LIBRARY KIT_COMES: record --probes, of a LuaJIT with the VM descriptor (LIBRARY, which LUAJIT loads).

What a profile says of its traces are the VM's own counts; what a breakpoint was written over is back when the recording is over;
traces are read as they are made. KIT_COMES LIBRARY SCRIPT makes and closes VMs. A LuaJIT without probes is recorded as ever, and it is said.
Children that come and go do not keep it from its samples. Exit 77: there is no BPF here, or the kernel lets nobody listen."""
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
BREAKPOINT = {"x86_64": b"\xcc", "aarch64": bytes.fromhex("a00020d4")}
ROUNDS = 300
VMS = 40
CHILDREN = 8
TRACES = """local n = ...
kept = kept or {}
for _ = 1, n do
	local f = loadstring("local s = 0 for i = 1, 200 do s = s + i end")
	kept[#kept + 1] = f
	f()
end
"""
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
        wanted = BREAKPOINT[os.uname().machine]
        with open("/proc/%d/mem" % self.child.pid, "rb") as memory:
            return all(os.pread(memory.fileno(), len(wanted), self.base + place) == wanted for place in places)

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


def record(moonspy, folder, *options):
    path = os.path.join(folder, "profile.json")
    return path, subprocess.Popen([moonspy, "record", "-r", "999", "-o", path, "--force", *options],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def ended(path, recorder):
    recorder.send_signal(signal.SIGINT)
    said = recorder.communicate()[1]
    if recorder.returncode:
        sys.exit("record: %d\n%s" % (recorder.returncode, said))
    with open(path, encoding="utf-8") as file:
        return json.load(file), said


def events_of(profile, pid=None):
    sums = {}
    for row in profile["events"]:
        if pid not in (None, row["pid"]):
            continue
        sums[row["event"]] = sums.get(row["event"], 0) + row["count"]
    return sums


def heard(moonspy, program, places, folder, line):
    """What the program and the profile say of what it did for a line."""
    path, recorder = record(moonspy, folder, "--probes", "-p", str(program.child.pid))
    until(lambda: program.broken_at(places) and waits(recorder), "nobody listens", recorder)
    own = program.do(line)
    profile, said = ended(path, recorder)
    if program.code() != program.before:
        sys.exit("the program's code is not what it was")
    if "probes were not" in said:
        sys.exit(said)
    return own, profile, events_of(profile)


def usable(moonspy, folder, luajit, library):
    """Whether the kernel lets moonspy listen here; else why not is said."""
    path = os.path.join(folder, "try.json")
    tried = subprocess.run([moonspy, "record", "-o", path, "--force", "--probes", "--", luajit, "-e", "for i = 1, 1e8 do end"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
                           env=dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(library)))
    why = [line for line in tried.stderr.splitlines() if "BPF cannot be used" in line or "BPF is not allowed" in line or
           "the VM's probes were not all heard" in line]
    for line in why:
        print("SKIP: %s" % line)
    return not why


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
    check({"traces made": own["stop"], "flushes of all traces": own["flush"], "root traces flushed": own["roots flushed"], "probe events lost": 0,
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
    own, profile, events = heard(moonspy, program, places, folder, VMS)
    program.end()
    # One that was closed before it could be proved is counted, but not as a VM, and so is what is none; the last one is still there.
    created, closed, other = (events.get(event, 0) for event in ("VMs created", "VMs closed", "events of what was not proved to be a VM"))
    if created + closed + other != own["made"] + own["closed"] + own["lies"] or not 0 < created <= own["made"] or other < own["lies"]:
        sys.exit("%s: %s" % (own, events))
    # Of each two lies one is of a trace, which nobody could read. However many there are, a VM that is there is heard.
    made = sum(row["count"] for row in profile["events"] if row["event"] == "traces made")
    unread = events.get(GONE, 0) - own["lies"] / 2
    if events.get("probe events lost", 0) or made < 2 * VMS or not 0 <= unread < made / 4:
        sys.exit("%d traces were not read of %d that were made: %s" % (unread, made, events))
    print("record --probes: of %d VMs, %d told of and proved, %d closed; %d lies refused" % (own["made"], created, closed, own["lies"]))


def children(moonspy, luajit, library, folder):
    """Breakpoints are written and taken out while children that live for a moment are sampled all the same."""
    path = os.path.join(folder, "children.json")
    loop = "local began = os.clock() repeat for i = 1, 1e4 do end until os.clock() - began > 0.1"
    shares = []
    for options in ([], ["--probes"]):
        subprocess.run([moonspy, "record", "-q", "-s", "-r", "999", "-o", path, "--force", *options, "--",
                        "sh", "-c", 'i=0; while [ $i -lt %d ]; do "$1" -e "$2"; i=$((i + 1)); done' % CHILDREN, "sh", luajit, loop],
                       check=True, stdout=subprocess.DEVNULL, env=dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(library)))
        with open(path, encoding="utf-8") as file:
            quality = json.load(file)["quality"]
        shares.append(quality["whole"] / quality["samples"])
    print("record -s: of %d children %.1f %% of stacks are whole, %.1f %% with --probes" % (CHILDREN, 100 * shares[0], 100 * shares[1]))
    if shares[1] < shares[0] - 0.15:
        sys.exit("listening keeps it from its samples")


def mounted(moonspy, luajit, library, script, places, folder):
    """Two programs of one file, which each sees through a mount of its own: each event is counted once."""
    source = os.path.dirname(library)
    programs = []
    os.mkdir(os.path.join(folder, "empty"))
    for name in ("first", "second"):
        mount = os.path.join(folder, name)
        os.mkdir(mount)
        command = ["unshare", "-m", "sh", "-c", 'mount -t overlay overlay -o "lowerdir=$1:$2" "$3" && shift 3 && exec "$@"', "sh",
                   source, os.path.join(folder, "empty"), mount]
        if subprocess.run([*command, "true"], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            print("SKIP: no overlay mounts here: two programs of one file")
            return
        programs.append(Program([*command, os.path.join(mount, os.path.basename(luajit)), script],
                                os.path.join(mount, os.path.basename(library))))
    path, recorder = record(moonspy, folder, "--probes", "-a")
    until(lambda: all(program.broken_at(places) for program in programs) and waits(recorder), "nobody listens", recorder)
    own = [program.do(20) for program in programs]
    profile, _ = ended(path, recorder)
    for program, said in zip(programs, own):
        check({"traces made": said["stop"], "flushes of all traces": said["flush"]}, events_of(profile, program.child.pid))
        program.end()
    print("record -a --probes: two programs of one file, each through a mount of its own, are counted once")


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
        if not usable(moonspy, folder, luajit, library):
            sys.exit(77)
        traces(moonspy, [luajit, script], library, places, folder)
        storm(moonspy, [luajit, script], library, folder)
        made = os.path.join(folder, "traces.lua")
        with open(made, "w", encoding="utf-8") as file:
            file.write(TRACES)
        comes_and_goes(moonspy, [comes, library, made], library, places, folder)
        children(moonspy, luajit, library, folder)
        mounted(moonspy, luajit, library, script, places, folder)
        if shutil.which("luajit"):
            without(moonspy, folder)
        else:
            print("SKIP: a LuaJIT without probes: there is no luajit")


main()
