#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds a profile (json or folded) against what is known of the workload.

usage: check.py PROFILE [options]
  --graph FILE        call graph: each stack must be a legal one (see callgraph.py)
  --truth FILE        the workload's output, with lines `truth NAME SECONDS`
  --min-whole PCT     least share of whole stacks [99.5], without those of a program's start
  --max-start N       as many samples may lack the mappings of a program that has just started [10]
  --draws N           the samples are of so many independent looks only; 0: each is one [0]
  --max-tv PCT        largest total variation distance from the truth [2]
  --max-illegal PCT   largest share of samples with an illegal stack [0]
  --max-native PCT    largest share of samples without Lua frames [what the graph says]
  --min-samples N     least number of samples [100]
  --inlined-hidden    functions inlined into traces may be missing
  --lua-only          the profile has no native frames: do not ask for them
  --contains REGEX[=PCT]  at least PCT % [1] of the folded stacks match; repeatable
  --lacks REGEX       no folded stack matches; repeatable
  --single-root       (without a graph) every stack begins with a thread's first function
  --figures TEXT      last line: TEXT and the figures in one line
  --quiet             only faults and the last line
  --lint              check the graph itself and stop (PROFILE is not read)
exit status: 0 all as asked, 1 not, 2 wrong usage or unreadable input
"""
import argparse
import collections
import json
import os
import re
import sys

from callgraph import Graph, GraphError, LUA_KINDS, MAIN, is_builtin, piece

STARTING = ("process not known yet", "pc in no known mapping")
GONE = "[function gone]"  # collected before it could be named: whole, but unknown
MAX_LEAF_NATIVE = 64     # native frames on top of a Lua function
MAX_BETWEEN_NATIVE = 64  # and between two

Stack = collections.namedtuple("Stack", "frames count pid tid")
KINDS = {"lua", "jit", "inlined", "fast", "cfunction", "native", "kernel", "state", "error"}


class Frame:
    __slots__ = ("kind", "name", "file", "line", "defined", "object", "address", "certain")

    def __init__(self, kind, name=None, file=None, line=0, defined=None, object=None, address=0,
                 certain=True):
        self.kind, self.name, self.file, self.line = kind, name, file, line
        self.defined, self.object, self.address, self.certain = defined, object, address, certain

    def text(self):
        if self.kind in LUA_KINDS:
            mark = {"jit": "_[j]", "inlined": "_[i]"}.get(self.kind, "")
            return "%s%s (%s:%s)%s" % ("" if self.certain else "~", self.name, self.file, self.defined, mark)
        if self.kind in ("native", "cfunction"):
            if self.name and self.object:
                return "%s (%s)" % (self.name, self.object)
            return self.name or "%s+0x%x" % (self.object or "?", self.address or 0)
        return self.name + ("_[k]" if self.kind == "kernel" else "")


class InputError(Exception):
    pass


# ---- reading profiles ----

def read_json(data):
    if data.get("schema") != 1:
        raise InputError("schema is %r, not 1" % data.get("schema"))
    quality = data.get("quality")
    if not isinstance(quality, dict):
        raise InputError("no quality")
    for key in ("samples", "lost", "whole", "truncated", "errors", "seconds", "rate"):
        if key not in quality:
            raise InputError("quality has no %s" % key)
    table = data.get("frames")  # stacks may refer to a shared table of frames
    stacks = []
    for entry in data["stacks"]:
        frames = []
        for raw in entry["frames"]:
            raw = table[raw] if isinstance(raw, int) else raw
            if raw.get("kind") not in KINDS:
                raise InputError("unknown frame kind %r" % raw.get("kind"))
            address = raw.get("address") or 0
            if isinstance(address, str):
                address = int(address, 0)
            if raw.get("vm"):  # the interpreter's own block: always there between C and Lua, says nothing
                continue
            frames.append(Frame(raw["kind"], raw.get("name"), raw.get("file"), raw.get("line") or 0,
                                raw.get("defined") or 0, raw.get("object"), address,
                                raw.get("certain", True)))
        if not entry["frames"] or not entry["count"] > 0:
            raise InputError("a stack without frames or count")
        if not frames:  # the interpreter's block and nothing else
            frames.append(Frame("native", "[luajit vm]"))
        stacks.append(Stack(frames, entry["count"], entry.get("pid"), entry.get("tid")))
    return stacks, quality


FOLDED_LUA = re.compile(r"^(~?)(.+) \((.*):(\d+)\)(?::(\d+))?(_\[[ji]\])?$", re.S)
FOLDED_NATIVE = re.compile(r"^(.+) \(([^()]+)\)$", re.S)
FOLDED_OFFSET = re.compile(r"^(.+)\+0x([0-9a-f]+)$")


def folded_frame(text):
    if re.match(r"^\[(truncated|error: .*)\]$", text):
        return Frame("error", text)
    if text.endswith("_[k]"):
        return Frame("kernel", text[:-4])
    if text in ("[gc]", "[jit compiler]", "[trace exit]"):
        return Frame("state", text)
    found = FOLDED_LUA.match(text)
    if found:
        guess, name, file, defined, line, mark = found.groups()
        kind = {"_[j]": "jit", "_[i]": "inlined"}.get(mark, "lua")
        return Frame(kind, name, file, int(line or 0), int(defined), certain=not guess)
    found = FOLDED_NATIVE.match(text)
    if found:
        return Frame("native", found.group(1), object=found.group(2))
    found = FOLDED_OFFSET.match(text)
    if found:
        return Frame("native", None, object=found.group(1), address=int(found.group(2), 16))
    return Frame("fast" if is_builtin(text) or "." in text else "native", text)


def read_folded(text):
    stacks = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        frames, _, count = line.rpartition(" ")
        if not frames or not count.isdigit() or int(count) == 0:
            raise InputError("line %d is not `frames count`" % number)
        stacks.append(Stack([folded_frame(part) for part in frames.split(";")], int(count), None, None))
    return stacks, None


def read_profile(path):
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if text.lstrip().startswith("{"):
            return read_json(json.loads(text))
        return read_folded(text)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise InputError("broken profile: %r" % error)


# ---- one stack against the graph ----

def builtin_name(name):
    """Methods as the VM's own list calls them: ffi:__call is ffi.meta.__call, file:close io.method.close."""
    kind, colon, method = (name or "").partition(":")
    table = {"ffi": "ffi.meta", "file": "io.method", "io": "io.method", "buffer": "buffer.method"}
    return "%s.%s" % (table.get(kind, kind), method) if colon else name


class Checker:
    def __init__(self, graph, inlined_hidden=False, lua_only=False):
        self.graph, self.inlined_hidden, self.lua_only = graph, inlined_hidden, lua_only

    def name(self, frame):
        """The graph's name of a Lua-side frame (where it is defined decides), and what is wrong with how it
        is printed."""
        graph = self.graph
        if frame.kind not in LUA_KINDS:
            return graph.aliases.get(frame.name, builtin_name(frame.name)), None
        if frame.name == GONE:
            return GONE, None
        base = os.path.basename(frame.file or "")
        expected = graph.definitions.get((base, frame.defined))
        if frame.name == "anonymous" and expected and expected.startswith("@"):
            name = expected
        else:
            name = frame.name
        known = any(base == file for file, _ in graph.definitions)
        if known and expected is None:
            return name, "no function is defined at %s:%s" % (base, frame.defined)
        if name in graph.also.get(expected, ()):
            name = expected
        if known and expected != name:
            return expected, "%s:%s defines %s, not %s" % (base, frame.defined, expected, name)
        last = graph.lines.get((base, frame.defined))
        if known and last and frame.line and not frame.defined <= frame.line <= last:
            return name, "line %d is outside %s:%d-%d" % (frame.line, base, frame.defined, last)
        return name, None

    def split(self, frames):
        """[native group, lua, native group, lua, ..., native group], without kernel frames on top and states.

        A state stands above the Lua function in which the VM is busy with itself, before
        the C functions that do it. Only the collector comes back to Lua, for a finalizer.
        """
        frames = list(frames)
        while frames and frames[-1].kind == "kernel":
            frames.pop()
        groups, lua, state = [[]], [], None
        for frame in frames:
            if frame.kind in ("kernel", "error"):
                return None, None, "%s frame %s inside the stack" % (frame.kind, frame.name)
            if frame.kind == "state":
                state = frame.name
                continue
            if frame.kind not in ("native", "cfunction") and state not in (None, "[gc]"):
                return None, None, "%s calls %s" % (state, frame.name)
            if frame.kind not in ("native", "cfunction"):
                state = None
            if frame.kind in ("native", "cfunction"):
                # The stub of a call into a library has no frame of its own: it is its caller's jump.
                if frame.name != "[luajit vm]" and not (frame.name or "").endswith("@plt"):
                    groups[-1].append(frame)
            else:
                lua.append(frame)
                groups.append([])
        return groups, lua, None

    def fault(self, stack):
        """None for a legal stack, else what is wrong. Broken stacks are judged from where they begin, and what
        is marked as an estimate is not judged."""
        if any(not frame.certain and frame.kind not in ("jit", "inlined") for frame in stack.frames):
            return "an estimated frame that is not of compiled code"
        frames, whole = [frame for frame in stack.frames if frame.certain], True
        if not frames:
            return "nothing but estimates"
        if frames[0].kind == "error":
            frames, whole = frames[1:], False
        if not frames:
            return None
        groups, lua, why = self.split(frames)
        if why:
            return why
        if whole and (groups[0] or lua) and not self.lua_only:
            why = self.root_fault(groups[0], bool(lua))
            if why:
                return why
            text = ";".join(frame.text() for frame in groups[0])
            if lua and any(regex.fullmatch(text) for regex in self.graph.foreign_roots):
                return None
        names = [self.name(frame)[0] for frame in lua]
        return self.path_fault(groups, lua, names, whole)

    def root_fault(self, group, has_lua):
        text = ";".join(frame.text() for frame in group)
        legal = self.graph.roots if has_lua else self.graph.native_roots
        if any(regex.fullmatch(text) for regex in legal):
            return None
        return "not a legal root: %s" % (text or "(no native frame)")

    def path_fault(self, groups, lua, names, whole):
        graph = self.graph
        if whole and names and names[0] not in graph.entries and names[0] != GONE:
            return "%s is no entry" % names[0]
        for i in range(len(names) - 1):
            why = self.call_fault(names[i], names[i + 1], len(groups[i + 1]), lua[i].kind,
                                  i + 2 == len(names))
            why = why or self.between_fault(names[i], names[i + 1], groups[i + 1])
            if why:
                return why
        if len(groups[-1]) > MAX_LEAF_NATIVE and names:
            return "%d native frames at the leaf" % len(groups[-1])
        return self.count_fault(names) if whole and GONE not in names else None

    def call_fault(self, caller, callee, native, kind, last):
        modes = self.graph.edges.get(caller, {}).get(callee)
        if GONE in (caller, callee):
            return None
        if modes is None and last and callee in self.graph.builtins:
            modes = {"vm"}
        if modes is None:
            if self.inlined_hidden and kind in ("jit", "inlined") and \
                    self.graph.reachable(caller, callee):
                return None
            return "%s does not call %s" % (caller, callee)
        if self.lua_only:
            return None
        if native == 0 and "vm" not in modes:
            return "no native frames between %s and %s" % (caller, callee)
        if native > 0 and "native" not in modes:
            return "native frames between %s and %s" % (caller, callee)
        if native > MAX_BETWEEN_NATIVE:
            return "%d native frames between %s and %s" % (native, caller, callee)
        return None

    def between_fault(self, caller, callee, group):
        regex = self.graph.between.get((caller, callee))
        text = ";".join(frame.text() for frame in group)
        if regex is None or self.lua_only or regex.fullmatch(text):
            return None
        return "between %s and %s: %s" % (caller, callee, text)

    def count_fault(self, names):
        counts = collections.Counter(names)
        for name, limit in self.graph.depth.items():
            if counts[name] > limit:
                return "%d frames of %s, at most %d" % (counts[name], name, limit)
        if self.inlined_hidden:
            return None
        for name, rules in self.graph.when.items():
            if not counts[name]:
                continue
            for other, low, high in rules:
                if not low <= counts[other] <= high:
                    return "%s with %d frames of %s, not %d..%d" % (
                        name, counts[other], other, low, high)
        return None


# ---- the whole profile ----

class Result:
    def __init__(self):
        self.faults, self.rows = [], []

    def need(self, ok, what, value, wanted):
        self.rows.append((what, value, wanted, "ok" if ok else "FAULT"))
        if not ok:
            self.faults.append("%s: %s, wanted %s" % (what, value, wanted))

    def note(self, what, value):
        self.rows.append((what, value, "", ""))


def share(part, total):
    return 100.0 * part / total if total else 0.0


def chance(percent, total):
    """How far, in percent, a share seen in so many samples may be from the true one: once in some 2,000 tests."""
    return 3.5 * (percent * (100.0 - percent) / total) ** 0.5 if total else 0.0


def lua_names(checker, stack):
    return [checker.name(frame)[0] for frame in stack.frames if frame.kind in LUA_KINDS or frame.kind == "fast"]


def read_truth(path):
    """Seconds per name; several lines of one name (threads, processes) add up."""
    truth = collections.Counter()
    with open(path, errors="replace") as file:
        for line in file:
            found = re.match(r"^truth (.+) ([0-9.]+(?:e-?\d+)?)$", line.rstrip("\n"))
            if found:
                truth[found.group(1)] += float(found.group(2))
    if not truth or sum(truth.values()) <= 0:
        raise InputError("no truth lines in %s" % path)
    return truth


def compare_truth(checker, stacks, truth):
    """Total variation distance in percent, and the table it comes from."""
    seen, owners = collections.Counter(), checker.graph.owners
    for stack in stacks:
        names = lua_names(checker, stack)
        owner = next((name for name in names if name in truth), None)
        if owner is None and stack.frames[0].kind == "error":
            owner = next((owners[name] for name in reversed(names) if name in owners), None)
        owner = owner or "(other)"
        seen[owner] += stack.count
    total, seconds = sum(seen.values()), sum(truth.values())
    rows = [(name, share(truth.get(name, 0), seconds), share(seen[name], total))
            for name in sorted(set(truth) | set(seen))]
    return 50.0 * sum(abs(a - b) for _, a, b in rows) / 100.0, rows


def check_quality(result, stacks, quality, total):
    errors = sum(s.count for s in stacks if s.frames[0].kind == "error")
    truncated = sum(s.count for s in stacks if s.frames[0].name == "[truncated]")
    if quality is None:
        return total - errors, truncated, 0
    lost = quality["lost"]
    result.need(total in (quality["samples"], quality["samples"] - lost), "stacks and samples agree",
                "%d, %d" % (total, quality["samples"]), "equal")
    result.need(quality["whole"] == total - errors, "whole as counted", quality["whole"], total - errors)
    result.need(quality["truncated"] == truncated, "truncated as counted", quality["truncated"], truncated)
    wrong = errors - truncated
    reasons = sum(n for reason, n in quality["errors"].items()
                  if "truncated" not in reason and "gone" not in reason)
    result.need(reasons == wrong, "reasons add up", reasons, wrong)
    for reason, count in quality["errors"].items():
        result.note("  " + reason, count)
    return total - errors, truncated, lost


def check_graph(result, checker, stacks, total, draws, max_illegal):
    illegal, misnamed, misnaming = collections.Counter(), collections.Counter(), 0
    samples = {}
    own, inside, native = collections.Counter(), collections.Counter(), 0
    for stack in stacks:
        why = checker.fault(stack)
        if why:
            illegal[why] += stack.count
            samples.setdefault(why, stack)
        wrong = {checker.name(frame)[1] for frame in stack.frames if frame.kind in LUA_KINDS} - {None, GONE}
        misnaming += stack.count if wrong else 0
        for why in wrong:
            misnamed[why] += stack.count
            samples.setdefault(why, stack)
        names = lua_names(checker, stack)
        native += 0 if names else stack.count
        if names:
            own[names[-1]] += stack.count
        inside.update({name: stack.count for name in set(names)})
    bad = sum(illegal.values())
    result.need(share(bad, total) <= max_illegal, "illegal stacks", "%d (%.3f %%)" % (bad, share(bad, total)),
                "<= %g %%" % max_illegal)
    graph = checker.graph
    result.need(share(misnaming, total) <= graph.misnamed, "with a wrong name or line",
                "%.2f %%" % share(misnaming, total), "<= %g %%" % graph.misnamed)
    for why, count in misnamed.most_common(20):
        if share(misnaming, total) > graph.misnamed:
            result.faults.append("%d x %s" % (count, why))
    result.need(share(inside[GONE], total) <= graph.gone, "with a function that is gone",
                "%.3f %%" % share(inside[GONE], total), "<= %g %%" % graph.gone)
    if graph.entries:
        result.need(share(native, total) <= graph.native, "without Lua frames",
                    "%.2f %%" % share(native, total), "<= %g %%" % graph.native)
    for name, limit in graph.own.items():
        result.need(share(own[name], total) <= limit + chance(limit, draws), "own share of " + name,
                    "%.2f %%" % share(own[name], total), "<= %g %%" % limit)
    for name, limit in graph.min.items():
        if limit * draws < 500:  # five samples at least, or chance decides
            continue
        result.need(share(inside[name], total) >= limit - chance(limit, draws), "share with " + name,
                    "%.2f %%" % share(inside[name], total), ">= %g %%" % limit)
    return illegal, samples


def check_text(result, stacks, total, draws, contains, lacks):
    lines = [(";".join(frame.text() for frame in stack.frames), stack.count) for stack in stacks]
    for pattern in contains:
        regex, _, percent = pattern.rpartition("=") if re.search(r"=[0-9.]+$", pattern) else (pattern, "", "1")
        found = share(sum(n for text, n in lines if piece(regex).search(text)), total)
        percent = float(percent)
        result.need(found and found >= percent - chance(percent, draws), "stacks with " + regex,
                    "%.2f %%" % found, ">= %g %%" % percent)
    for regex in lacks:
        found = sum(n for text, n in lines if re.search(regex, text))
        result.need(found == 0, "stacks with " + regex, found, "none")


def check_roots(result, stacks, total):
    roots = [piece("{start}{more}"), piece("{thread}{more}"), piece("{around}")]
    bad = collections.Counter()
    for stack in stacks:
        frames = [f for f in stack.frames if f.kind in ("native", "cfunction", "kernel")]
        if stack.frames[0].kind in ("kernel", "error"):
            continue
        text = ";".join(f.text() for f in frames if f.kind != "kernel")
        if stack.frames[0].kind != "native" or not any(r.match(text) for r in roots):
            bad[";".join(f.text() for f in stack.frames[:4])] += stack.count
    count = sum(bad.values())
    result.need(share(count, total) <= 0.5, "stacks not from a thread's start", "%.2f %%" % share(count, total),
                "<= 0.5 %")
    for text, n in bad.most_common(5):
        result.note("  " + text, n)


def parse_arguments(argv):
    parser = argparse.ArgumentParser(usage=__doc__.replace("%", "%%"), add_help=False)
    parser.add_argument("profile", nargs="?")
    for name, kind, default in (("graph", str, None), ("truth", str, None), ("min-whole", float, 99.5),
                                ("max-tv", float, 2.0), ("max-illegal", float, 0.0),
                                ("min-samples", int, 100), ("max-start", int, 10), ("draws", int, None),
                                ("max-native", float, None), ("figures", str, None)):
        parser.add_argument("--" + name, type=kind, default=default)
    for name in ("inlined-hidden", "lua-only", "quiet", "lint", "single-root"):
        parser.add_argument("--" + name, action="store_true")
    parser.add_argument("--contains", action="append", default=[])
    parser.add_argument("--lacks", action="append", default=[])
    return parser.parse_args(argv)


def run(options):
    graph = Graph(options.graph) if options.graph else None
    if graph and options.max_native is not None:
        graph.native = options.max_native
    if options.lint:
        complaints = graph.lint()
        print("\n".join("%s: %s" % (options.graph, text) for text in complaints) or "%s: ok" % options.graph)
        return 1 if complaints else 0
    stacks, quality = read_profile(options.profile)
    total = sum(stack.count for stack in stacks)
    draws = min(total, options.draws or total)
    result = Result()
    checker = Checker(graph or Graph(os.devnull), options.inlined_hidden, options.lua_only)
    result.need(total >= options.min_samples, "samples", total, ">= %d" % options.min_samples)
    whole, truncated, lost = check_quality(result, stacks, quality, total)
    good = whole + (truncated if graph and graph.truncated else 0)
    starting = min(options.max_start, sum(quality["errors"].get(why, 0) for why in STARTING) if quality else 0)
    result.need(share(good, total - starting) >= options.min_whole, "whole stacks",
                "%.3f %% (%d at the start)" % (share(good, total - starting), starting), ">= %g %%" % options.min_whole)
    illegal, samples, rows, distance = {}, {}, [], None
    if graph:
        illegal, samples = check_graph(result, checker, stacks, total, draws, options.max_illegal)
    if options.single_root:
        check_roots(result, stacks, total)
    if options.truth:
        distance, rows = compare_truth(checker, stacks, read_truth(options.truth))
        result.need(distance <= options.max_tv, "distance from truth", "%.2f %%" % distance,
                    "<= %g %%" % options.max_tv)
    check_text(result, stacks, total, draws, options.contains, options.lacks)
    show(options, result, illegal, samples, rows)
    if options.figures is not None:
        print("%s: %d samples, %d lost, %.3f %% whole, %d illegal%s%s%s" % (
            options.figures, total, lost, share(good, total), sum(illegal.values()) if illegal else 0,
            "" if distance is None else ", %.2f %% from truth" % distance,
            ", %d ns a sample in BPF" % quality["bpf_ns_per_sample"]
            if quality and quality.get("bpf_ns_per_sample") else "",
            "" if not result.faults else " -- FAULTS: " + "; ".join(result.faults)))
    return 1 if result.faults else 0


def show(options, result, illegal, samples, rows):
    if not options.quiet:
        for row in result.rows:
            print("%-44s %18s %14s  %s" % tuple(str(part) for part in row))
        if rows:
            print("%-44s %8s %8s" % ("work", "truth %", "seen %"))
        for name, true, seen in rows:
            print("%-44s %8.2f %8.2f" % (name, true, seen))
    elif result.faults:
        for fault in result.faults:
            print("FAULT " + fault)
    for why, count in sorted(illegal.items(), key=lambda item: -item[1])[:40]:
        print("illegal x%d: %s" % (count, why))
        print("    " + ";".join(frame.text() for frame in samples[why].frames))


def main(argv):
    options = parse_arguments(argv)
    if not options.lint and not options.profile or options.lint and not options.graph:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        return run(options)
    except (InputError, GraphError, OSError, re.error) as error:
        print("check.py: %s" % error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
