#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: probes.py LUAJIT SCRIPT. Probes fire as often as the VM's own events do, with arguments that fit."""
import os
import re
import subprocess
import sys
import tempfile

GDB = """
set pagination off
set breakpoint pending on
set disable-randomization on
break main
run
"""

# Told of each hit: the VM, and the next two arguments, if there are as many.
HIT = """
break -probe-stap luajit:%s
commands
silent
printf "probe %s %%lx %%lx %%lx\\n", $_probe_arg0, $_probe_arg1, %s
continue
end
"""


def main():
    names = ["vm_created", "vm_closed", "trace_start", "trace_stop", "trace_abort", "trace_flush", "error_thrown", "gc_phase"]
    library = os.path.dirname(sys.argv[1])
    commands = GDB + "".join(HIT % (name, name, "$_probe_arg2" if name == "gc_phase" else "0") for name in names) + "continue\n"
    env = dict(os.environ, LD_LIBRARY_PATH=library, LUA_PATH=library + "/?.lua", HOME="/nonexistent")
    with tempfile.NamedTemporaryFile("w", suffix=".gdb") as file:
        file.write(commands)
        file.flush()
        out = subprocess.run(["gdb", "-nx", "-q", "-batch", "-x", file.name, "--args", *sys.argv[1:]], env=env, text=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    events = re.search(r"^(\d+)\t(\d+)\t(\d+)\t(\d+)$", out, re.M)
    if not events:
        sys.exit("the script printed nothing:\n" + out[-2000:])
    started, stopped, aborted, flushed = map(int, events.groups())
    hits = re.findall(r"^probe (\w+) (\w+) (\w+) (\w+)$", out, re.M)
    count = {name: sum(hit[0] == name for hit in hits) for name in names}
    flushes = sum(hit[0] == "trace_flush" and int(hit[2], 16) == 0 for hit in hits)
    print("probes: %s; the VM: %d started, %d stopped, %d aborted, %d flushed" % (
        ", ".join("%s %d" % (name, count[name]) for name in names), started, stopped, aborted, flushed))
    wrong = []
    # After the script has detached, nothing is compiled any more: its end is a few calls.
    for name, events in (("trace_start", started), ("trace_stop", stopped), ("trace_abort", aborted)):
        if count[name] != events:
            wrong.append("%s fired %d times for %d events" % (name, count[name], events))
    if flushes != flushed or not flushed or not aborted or not stopped:
        wrong.append("%d flushes for %d events" % (flushes, flushed))
    if count["vm_created"] != 1 or count["vm_closed"] != 1 or count["error_thrown"] < 7:
        wrong.append("VMs or errors: wrong counts")
    if len({hit[1] for hit in hits}) != 1:
        wrong.append("not always the same VM: " + ", ".join(sorted({hit[1] for hit in hits})))
    order = [hit[0] for hit in hits]
    if order and (order[0] != "vm_created" or order[-1] != "vm_closed"):
        wrong.append("first %s, last %s" % (order[0], order[-1]))
    phases = [(int(hit[2], 16), int(hit[3], 16)) for hit in hits if hit[0] == "gc_phase"]
    for (new, _), (_, old) in zip(phases, phases[1:]):
        if old != new:
            wrong.append("the collector's phase was %d, then changed from %d" % (new, old))
            break
    if wrong:
        sys.exit("\n".join(wrong))


main()
