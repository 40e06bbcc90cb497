#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds moonspy against many builds of LuaJIT, and prints a table, a line a build.

usage: matrix.py [options] [NAME...]
  --ci           only the quick selection: each layout once
  --arm64        builds for arm64, by cross compiler, under qemu's user mode
  --list         names of the builds, and nothing else
  --seconds N    time of one recording, 0: none [4]
  --steps N      instructions the oracle steps a workload, 0: none [20000]
  --workloads L  names, joined by commas [mixed,coroutines]
  --stop         at the first fault
  --build DIR    meson's folder [build]
NAME: only builds whose name holds that text.

Columns: evidence found / missing / wrong, each against the truth of the build's own headers (where the mirror
has only the upstream tarball of a package: how many are as in that); proved, by how many checks; milliseconds of `inspect -p` with nothing and with everything cached; share of whole
stacks at 999 Hz, and illegal ones; the oracle's faults; how many moments were the same live and as a core.
exit status: 0 all as asked, 1 not, 77 nothing could run here (the reason is printed)
"""
import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import arm64
import cores
import get
from get import Missing
from rows import ROWS, ROWS_ARM64

WORKLOADS = os.path.join(get.ROOT, "tests/workloads")
MIN_WHOLE = 99.5
# A sample in some thousands: the same bar as tests/e2e/workload.sh.
MAX_ILLEGAL = 0.1


class Row:
    def __init__(self, row, args, work):
        self.row, self.args, self.work = row, args, work
        self.faults, self.started = [], []
        self.compared = self.agreed = 0
        self.cells = {}
        self.build = os.path.join(get.ROOT, args.build) if not os.path.isabs(args.build) else args.build
        self.moonspy = os.path.join(self.build, "src/cli/moonspy")

    def workloads(self):
        return self.row.get("workloads", self.args.workloads).split(",")

    def fault(self, text):
        self.faults.append(text)

    @staticmethod
    def script(name):
        own = os.path.join(get.HERE, name + ".lua")
        return own if os.path.exists(own) else os.path.join(WORKLOADS, name + ".lua")

    @staticmethod
    def graph(name):
        return graph_of(name)

    # ---- getting it ----

    def get(self):
        self.tree = get.tree(self.row)
        self.root = get.packages(self.row) if "packages" in self.row else None
        if "fiber" in self.row:
            self.row = dict(self.row, file=arm64.fiber(self, self.tree))
        self.file = os.path.join(self.root or self.tree, self.row["file"])
        self.truth = get.truth(self.row, self.tree, self.work)
        # Where the mirror has no more than the upstream tarball, Debian's patches are unknown: they may move fields.
        self.exact = "packages" not in self.row or os.path.isdir(os.path.join(get.source(*self.row["tree"][:2]), "debian"))

    def command(self, *arguments):
        """Runs a Lua program of WORKLOADS: in the root with its own C library, or here."""
        program, run = arguments[0], self.row["run"]
        if not self.root:
            return [os.path.join(self.tree, run[0]), *run[1:], os.path.join(WORKLOADS, program), *arguments[1:]]
        inside = os.path.join(self.root, "w")
        for folder in (WORKLOADS, get.HERE):
            for name in os.listdir(folder):
                if name.endswith(".lua"):
                    shutil.copy(os.path.join(folder, name), inside)
        command = ["chroot", self.root, "/" + run[0], *run[1:], "/w/" + program, *arguments[1:]]
        if self.row.get("namespaces"):
            command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc=%s/proc" % self.root,
                       *command]
        return command

    # ---- evidence ----

    def inspect(self, *target):
        done = subprocess.run([self.moonspy, "inspect", "-j", *target], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env=self.env, timeout=60)
        if not done.stdout:
            raise Missing("inspect: " + done.stderr.strip())
        return done.returncode, json.loads(done.stdout)

    def evidence(self, seen):
        """seen: what inspect -j says. Every field of the truth, and what was said of it."""
        values = {}
        for item in seen.get("evidence", []):
            if item["found"]:
                values.setdefault(item["field"], set()).add(item["value"])
        missing = [name for name in self.truth if name not in values]
        wrong = [name for name in self.truth if values.get(name, {self.truth[name]}) != {self.truth[name]}]
        right = len(self.truth) - len(missing) - len(wrong)
        if not self.exact:
            self.cells["evidence"] = "%d of %d as upstream" % (right, len(self.truth))
            return
        self.cells["evidence"] = "%d / %d / %d" % (right, len(missing), len(wrong))
        for name in wrong:
            self.fault("%s is %s, not %d" % (name, sorted(values[name]), self.truth[name]))
        if missing:
            self.fault("not found: " + " ".join(missing))

    # ---- a live process ----

    def start(self, command):
        process = subprocess.Popen(command, stdout=open(os.path.join(self.work, "out"), "w"), stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
        self.started.append(process)
        # The workload "library" opens a copy, and deletes it at once.
        by_name = self.row["run"] or self.row.get("nginx")
        wanted = os.path.basename(os.path.realpath(self.file)) if by_name else "(deleted)"
        for _ in range(800):
            # The newest: of nginx a worker, not its master.
            for pid in reversed(family(process.pid)):
                if maps(pid, wanted):
                    return pid
            if process.poll() is not None:
                break
            time.sleep(0.05)
        with open(os.path.join(self.work, "out"), encoding="utf-8", errors="replace") as file:
            raise Missing("the program does not run: " + file.read()[-200:].strip().replace("\n", " | "))

    def stop(self):
        for process in self.started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        self.started = []

    def nginx(self):
        """Starts it in its root; returns the worker's pid, with load on it."""
        if not shutil.which("wrk"):
            raise Missing("wrk is not installed")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with open(os.path.join(get.HERE, "nginx.conf"), encoding="ascii") as file:
            text = file.read().replace("PORT", str(port))
        for name, content in (("w/nginx.conf", text), ("etc/passwd", "root:x:0:0::/:/bin/sh\n"), ("etc/group", "root:x:0:\n")):
            with open(os.path.join(self.root, name), "w", encoding="ascii") as file:
                file.write(content)
        shutil.copy(os.path.join(get.HERE, "nginx.lua"), os.path.join(self.root, "w"))
        os.makedirs(os.path.join(self.root, "var/log/nginx"), exist_ok=True)
        self.start(["chroot", self.root, "/usr/sbin/nginx", "-p", "/w", "-e", "stderr", "-c", "/w/nginx.conf"])
        url = "http://127.0.0.1:%d/" % port
        for _ in range(100):
            try:
                with urllib.request.urlopen(url) as answer:
                    if b"row" in answer.read():
                        break
            except OSError:
                time.sleep(0.1)
        else:
            raise Missing("nginx does not answer")
        master = self.started[-1].pid
        self.started.append(subprocess.Popen(["wrk", "-t1", "-c8", "-d120s", url], stdout=subprocess.DEVNULL,
                                             start_new_session=True))
        return family(master)[-1]

    def live_nginx(self):
        pid = self.nginx()
        self.evidence(self.proof(pid))
        self.record(pid, "nginx", "jit")
        self.stop()

    def live_command(self, name, mode):
        if self.row["run"] is None:
            return [os.path.join(self.build, "tests/workloads/library"), "120", self.file], "library"
        return self.command(name + ".lua", "600", mode), name

    def proof(self, pid):
        shutil.rmtree(self.env["MOONSPY_CACHE_DIR"], ignore_errors=True)
        took = []
        for _ in range(4):
            before = time.monotonic()
            code, seen = self.inspect("-p", str(pid))
            took.append((time.monotonic() - before) * 1e3)
        checks = seen.get("checks", [])
        passed = sum(check["result"] == "passed" for check in checks)
        failed = [check for check in checks if check["result"] == "failed"]
        self.cells["proved"] = "%s, %d of %d" % ("yes" if code == 0 else "NO", passed, len(checks))
        self.cells["attach"] = "%.0f / %.0f" % (took[0], min(took[1:]))
        if code or not seen.get("proved"):
            self.fault("not proved: " + "; ".join("%s (%s)" % (c["text"], c["detail"]) for c in failed))
        return seen

    def core(self, pid, name):
        """A moment of it, live and as a core. nginx's load must not be stopped for that long, and files of other namespaces
        cannot be seen in a core."""
        if self.row.get("nginx") or self.row.get("namespaces") or not shutil.which("gcore"):
            return
        self.compared += 1
        self.agreed += cores.agree(self, pid, name)

    def record(self, pid, name, mode):
        if not self.args.seconds:
            return
        profile = os.path.join(self.work, "profile")
        done = subprocess.run([self.moonspy, "record", "-p", str(pid), "-r", "999", "-d", "%gs" % self.args.seconds, "-f",
                               "json", "-o", profile, "--force"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env=self.env, timeout=300)
        if done.returncode:
            self.fault("record ended with %d: %s" % (done.returncode, done.stderr.strip()[-200:]))
            return
        # A library that is closed meanwhile takes its functions' names along: there only whole stacks count.
        graph = [] if name == "library" else ["--graph", graph_of(name), "--max-illegal", str(MAX_ILLEGAL)]
        check = subprocess.run([sys.executable, os.path.join(get.ROOT, "tests/e2e/check.py"), profile, *graph,
                                "--inlined-hidden", "--quiet", "--figures", name, "--min-whole", str(MIN_WHOLE)],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with open(profile, encoding="utf-8") as file:
            quality = json.load(file)["quality"]
        whole = 100.0 * quality["whole"] / max(quality["samples"], 1)
        self.whole = min(whole, getattr(self, "whole", 100.0))
        if check.returncode:
            self.fault("%s %s: %s" % (name, mode, check.stdout.strip()))

    def live(self):
        if self.row.get("nginx"):
            self.live_nginx()
            return
        modes = ["jit", "nojit"] if self.truth["jit"] else ["nojit"]
        for name in self.workloads():
            for mode in modes:
                command, graph = self.live_command(name, mode)
                pid = self.start(command)
                wait_cpu_time(pid, self.row.get("startup", 0.1))
                if "proved" not in self.cells:
                    self.evidence(self.proof(pid))
                self.record(pid, graph, mode)
                self.core(pid, name + " " + mode)
                self.stop()
                if graph == "library":
                    return

    def oracle(self):
        if not self.args.steps or self.row["run"] is None or self.row.get("namespaces"):
            self.cells["oracle"] = "-"
            return
        faults = steps = 0
        for name in self.workloads():
            for mode in ["nojit", "jit"] if self.truth["jit"] else ["nojit"]:
                stacks = os.path.join(self.work, "stacks")
                done = subprocess.run([os.path.join(self.build, "tests/conformance/oracle"), "-n", str(self.args.steps), "-w",
                                       "%d" % (1000 * self.row.get("startup", 0.1)), "-t", name + " " + mode, "-o", stacks,
                                       *self.command(name + ".lua", "100000", mode)],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.env, timeout=600)
                steps += self.args.steps
                text = done.stdout
                if done.returncode >= 2:
                    self.fault("oracle %s %s: %s" % (name, mode, text.strip()[-300:]))
                    continue
                legal = subprocess.run([sys.executable, os.path.join(get.ROOT, "tests/conformance/oracle_check.py"), stacks,
                                        graph_of(name), mode], stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True)
                if done.returncode or legal.returncode:
                    faults += 1
                    self.fault("oracle %s %s: %s" % (name, mode, (text + legal.stdout).strip()[-1500:]))
        self.cells["oracle"] = "%d in %d" % (faults, steps)

    def go(self):
        self.env = dict(os.environ, MOONSPY_CACHE_DIR=os.path.join(self.work, "cache"))
        try:
            self.get()
            self.evidence(self.inspect(self.file)[1])
            if self.row.get("cross"):
                arm64.look(self, self.args.steps)
            else:
                self.live()
            if self.compared:
                self.cells["cores"] = "%d of %d" % (self.agreed, self.compared)
                if self.row["run"] and not self.row.get("cross"):
                    cores.values(self)
            self.cells["whole"] = "%.2f" % self.whole if hasattr(self, "whole") else "-"
            if not self.row.get("cross"):
                self.oracle()
        finally:
            self.stop()


def graph_of(name):
    own = os.path.join(get.HERE, name + ".graph")
    return own if os.path.exists(own) else os.path.join(WORKLOADS, name + ".graph")


def family(pid):
    """The process and all below it."""
    found = [pid]
    for one in found:
        try:
            for task in os.listdir("/proc/%d/task" % one):
                with open("/proc/%d/task/%s/children" % (one, task), encoding="ascii") as file:
                    found += [int(child) for child in file.read().split()]
        except OSError:
            pass
    return found


def wait_cpu_time(pid, seconds):
    """Until the process has had that much, or is gone, or does nothing."""
    for _ in range(600):
        try:
            with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return
        if (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") >= seconds:
            return
        time.sleep(0.05)


def maps(pid, name):
    try:
        with open("/proc/%d/maps" % pid, encoding="utf-8", errors="replace") as file:
            return any(name in line and "x" in line.split()[1] for line in file)
    except OSError:
        return False


COLUMNS = (("build", 28), ("evidence", 20), ("proved", 14), ("attach", 12), ("whole", 7), ("oracle", 14), ("cores", 8))


def print_row(cells):
    print("  ".join(str(cells.get(name, "-")).ljust(width) for name, width in COLUMNS).rstrip(), flush=True)


def parse():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ci", action="store_true")
    parser.add_argument("--arm64", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--stop", action="store_true")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--workloads", default="mixed,coroutines")
    parser.add_argument("--build", default="build")
    return parser.parse_args()


def main():
    args = parse()
    rows = [row for row in (ROWS_ARM64 if args.arm64 else ROWS) if (not args.ci or row.get("ci")) and
            (not args.names or any(name in row["name"] for name in args.names))]
    if args.list:
        print("\n".join(row["name"] for row in rows))
        return 0
    if os.getuid():
        print("SKIP: not root: neither chroot nor sampling is possible")
        return 77
    print_row({name: name for name, _ in COLUMNS})
    failed, ran, reason = [], 0, ""
    for row in rows:
        with tempfile.TemporaryDirectory(prefix="moonspy-builds.") as work:
            one = Row(row, args, work)
            try:
                one.go()
                ran += 1
            except Missing as missing:
                reason = str(missing)
                print("%-28s  SKIP: %s" % (row["name"], reason), flush=True)
                continue
            print_row(dict(one.cells, build=row["name"]))
            for fault in one.faults:
                print("    FAULT " + fault.replace("\n", "\n        "), flush=True)
            failed += [row["name"]] if one.faults else []
            if failed and args.stop:
                break
    print("%d builds, %d with faults%s" % (ran, len(failed), ": " + ", ".join(failed) if failed else ""))
    if not ran:
        print("SKIP: no build could be had here: " + reason)
        return 77
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
