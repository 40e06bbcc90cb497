#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: probes.py TOOL LUAJIT FILE SCRIPT

Probes fire as often as the VM's own events do, in their order and with their arguments. LUAJIT runs SCRIPT, which prints the
events; FILE is what the probes are in, LUAJIT or its library. TOOL is who listens: gdb, bpftrace, perf, or the path of kit-usdt,
which does by libbpf. Exit 77: that cannot be had here."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ARGUMENTS = {"vm_created": 2, "vm_closed": 2, "heartbeat": 2, "gc_phase": 3, "trace_start": 5, "trace_stop": 6, "trace_abort": 5,
             "trace_flush": 2, "trace_exit": 3, "error_thrown": 3}
# Which arguments the VM's events tell too.
TOLD = {"trace_start": (1, 3, 4), "trace_stop": (1, 2, 3), "trace_abort": (1, 2), "trace_flush": (1,), "trace_exit": (1, 2)}
ERRORS = 7
MOST_RUNS = 200
LUA_ERRRUN = 2
HIT = re.compile(r"^probe (\w+)((?: \w+)+)$", re.M)


class Skip(Exception):
    """The reason."""


def run(command, env):
    done = subprocess.run(command, env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode == 77:
        raise Skip(done.stdout.strip())
    if done.returncode:
        sys.exit("%s: %d\n%s" % (command[0], done.returncode, done.stdout[-2000:]))
    return done.stdout


def lines(out):
    """Hits among the lines that a tool printed."""
    return [(name, [int(word, 16) for word in words.split()]) for name, words in HIT.findall(out)]


def by_gdb(_, command, env, folder):
    text = "set pagination off\nset breakpoint pending on\nbreak main\nrun\n"
    for name, count in ARGUMENTS.items():
        text += "break -probe-stap luajit:%s\ncommands\nsilent\nprintf \"probe %s%s\\n\"%s\ncontinue\nend\n" % (
            name, name, " %lx" * count, "".join(", $_probe_arg%d" % i for i in range(count)))
    path = os.path.join(folder, "commands")
    with open(path, "w", encoding="ascii") as file:
        file.write(text + "continue\n")
    out = run(["gdb", "-nx", "-q", "-batch", "-x", path, "--args", *command], env)
    return out, lines(out)


def last_run(said, hits):
    """The hits of the run that said this: that of the trace at its address, which is another in each run. None: not all are there yet."""
    address = int(re.search(r"^event trace_stop \w+ (\w+)", said, re.M).group(1), 16)
    of_it = [i for i, (name, arguments) in enumerate(hits) if name == "trace_stop" and arguments[2] == address]
    names = [name for name, _ in hits]
    if not of_it or "vm_closed" not in names[of_it[0]:]:
        return None
    first = max(i for i in range(of_it[0]) if names[i] == "vm_created")
    return hits[first:names.index("vm_closed", of_it[0]) + 1]


def by_bpftrace(file, command, env, folder):
    """Started by bpftrace itself, a program has not mapped its libraries yet when bpftrace looks for them; and it does not tell when
    it has attached. So the program runs until each probe was heard of, and once more."""
    program = "".join("usdt:%s:luajit:%s { printf(\"probe %s%s\\n\"%s); }\n" % (
        file, name, name, " %lx" * count, "".join(", arg%d" % i for i in range(count))) for name, count in ARGUMENTS.items())
    path = os.path.join(folder, "heard")

    def heard():
        with open(path, encoding="utf-8") as out:
            text = out.read()
        if "Lost " in text:
            raise Skip("it lost hits")
        return lines(text)

    with open(path, "w", encoding="utf-8") as out, \
            subprocess.Popen(["bpftrace", "-B", "line", "-e", program], env=env, stdin=subprocess.DEVNULL, stdout=out,
                             stderr=subprocess.STDOUT) as tracer:
        try:
            for _ in range(MOST_RUNS):
                if tracer.poll() is not None or {name for name, _ in heard()} == set(ARGUMENTS):
                    break
                run(command, env)
            said, hits, until = run(command, env), None, time.monotonic() + 60
            while tracer.poll() is None and not hits and time.monotonic() < until:
                time.sleep(0.05)
                hits = last_run(said, heard())
        finally:
            tracer.send_signal(signal.SIGINT)
    return said, hits or []


def by_usdt(program):
    def listen(file, command, env, _):
        out = run([program, file, *command], env)
        return out, lines(out)
    return listen


def by_perf(file, command, env, folder):
    """perf needs tracefs, and keeps what it knows of probes below the home folder."""
    env = dict(env, HOME=folder)
    data, events = os.path.join(folder, "data"), ["sdt_luajit:%s" % name for name in ARGUMENTS]
    text = """[ -e /sys/kernel/tracing/uprobe_events ] || mount -t tracefs t /sys/kernel/tracing || exit
		[ -z "$(perf probe -q -l 'sdt_luajit:*')" ] || { echo "others listen to such probes"; exit 77; }
		trap 'perf probe -q -d "sdt_luajit:*"' EXIT
		perf probe -q %s && perf record -q -o '%s' -e 'sdt_luajit:*' -- %s >'%s/out'""" % (
        " ".join("--add '%%%s'" % event for event in events), data, " ".join(command), folder)
    run(["perf", "buildid-cache", "--add", file], env)
    run(["unshare", "-m", "sh", "-c", text], env)
    with open(os.path.join(folder, "out"), encoding="utf-8") as out:
        said = out.read()
    hits = []
    for line in run(["perf", "script", "-i", data, "-F", "event,trace"], env).splitlines():
        found = re.match(r" *sdt_luajit:([a-z_]+?)(?:_\d+)?: +\(\w+\)(.*)", line)
        if found:
            words = dict(re.findall(r"arg(\d+)=(-?\w+)", found.group(2)))
            hits.append((found.group(1), [int(words[str(i + 1)], 0) % 2**64 for i in range(len(words))]))
    return said, hits


def trace_faults(out, hits):
    """Against what the VM told of its traces."""
    events = [(name, [int(word, 16) for word in words.split()]) for name, words in
              re.findall(r"^event (\w+)((?: \w+)+)$", out, re.M)]
    if not {"trace_start", "trace_stop", "trace_abort", "trace_flush", "trace_exit"} <= {name for name, _ in events}:
        return ["the script did not print all kinds of events:\n" + out[-2000:]]
    # Of single traces that are flushed the VM has no event; and of what comes last, the script detached.
    told = [(name, [arguments[i] for i in TOLD[name]]) for name, arguments in hits
            if name in TOLD and not (name == "trace_flush" and arguments[1])]
    for i, (event, hit) in enumerate(zip(events, told)):
        if event != hit:
            return ["event %d of the VM is %s, the probe's %s" % (i, event, hit)]
    return [] if len(events) == len(told) else ["%d events of the VM, %d of the probes" % (len(events), len(told))]


def start_faults(hits):
    """A trace starts where it is said to have started when it stops or is aborted."""
    start = {}
    for name, arguments in hits:
        if name == "trace_start":
            start[arguments[1]] = arguments[2]
        elif name in ("trace_stop", "trace_abort"):
            at = arguments[5 if name == "trace_stop" else 3]
            if name == "trace_stop" and at != start.get(arguments[1]):
                yield "%s of %d: it began at %x, not at %x" % (name, arguments[1], start.get(arguments[1], 0), at)


def vm_faults(hits):
    """Against what is known of any VM."""
    count = {name: sum(hit[0] == name for hit in hits) for name in ARGUMENTS}
    errors = [arguments[2] for name, arguments in hits if name == "error_thrown"]
    # Each abort of a trace throws an error of its own.
    if errors != [LUA_ERRRUN] * (ERRORS + count["trace_abort"]):
        yield "errors thrown: %s" % errors
    if count["vm_created"] != 1 or count["vm_closed"] != 1 or not count["heartbeat"] or not count["gc_phase"]:
        yield "VMs created, closed, heartbeats, phases: %s" % count
    if hits[0][0] != "vm_created" or hits[-1][0] != "vm_closed":
        yield "first %s, last %s" % (hits[0][0], hits[-1][0])
    if len({arguments[0] for _, arguments in hits}) != 1:
        yield "not always the same VM"
    if len({arguments[1] for name, arguments in hits if name.startswith("vm_")}) != 1:
        yield "not the same main thread"
    phases = [arguments[1:3] for name, arguments in hits if name == "gc_phase"]
    for (new, _), (_, old) in zip(phases, phases[1:]):
        if old != new:
            yield "the collector's phase was %d, then changed from %d" % (new, old)


def main():
    tool, luajit, file, script = sys.argv[1:]
    listen = {"gdb": by_gdb, "bpftrace": by_bpftrace, "perf": by_perf}.get(tool) or by_usdt(tool)
    library = os.path.dirname(os.path.abspath(luajit))
    env = dict(os.environ, LD_LIBRARY_PATH=library, HOME="/nonexistent")
    with tempfile.TemporaryDirectory() as folder:
        try:
            if not shutil.which(tool):
                raise Skip("there is none")
            out, hits = listen(os.path.abspath(file), [os.path.abspath(luajit), script], env, folder)
        except Skip as reason:
            print("probes by %s: %s" % (os.path.basename(tool), reason))
            return 77
    if not hits:
        sys.exit("no probe was hit:\n" + out[-2000:])
    hits = [(name, arguments[:ARGUMENTS[name]]) for name, arguments in hits]
    wrong = trace_faults(out, hits) + list(start_faults(hits)) + list(vm_faults(hits))
    print("probes by %s in %s: %s" % (os.path.basename(tool), os.path.basename(file), ", ".join(
        "%s %d" % (name, sum(hit[0] == name for hit in hits)) for name in ARGUMENTS)))
    if wrong:
        sys.exit("\n".join(wrong))
    return 0


sys.exit(main())
