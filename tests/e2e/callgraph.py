# SPDX-License-Identifier: MIT
"""The call graph of a workload: which stacks can exist.

A .graph file is read line by line; '#' starts a comment. A line with an arrow
is a set of calls, any other line starts with a keyword.

  CALLER -> CALLEE...   CALLER may call each CALLEE. Functions are named as
                        moonspy prints them; `<main>` is "main chunk"; `@tag`
                        is the anonymous function defined on the source line
                        that carries the comment `--@tag`. `A|B -> C` is short
                        for two lines. After a callee:
                        /c    native frames lie between caller and callee
                        /c?   they may
                        (none) there must be none: the call stays in the VM
  source FILE...        Lua files of the workload, beside the .graph file
  include FILE          another .graph file, read as if it stood here
  root REGEX            the native frames from the thread's first function to
                        the first Lua function, as text joined by ';'. Several
                        lines are alternatives. {start} {thread} {call} {any}
                        stand for common pieces (see PIECES)
  root-foreign REGEX    the same for a program's own Lua, of which no graph is known: only the root is judged
  define NAME REGEX     a piece of this workload's own, from here on {NAME}
  root-native REGEX     the same for stacks without any Lua frame (default: anything that
                        begins like a thread)
  between A B REGEX     the native frames between A and its callee B
  entry NAME...         legal outermost Lua functions
  builtin NAME...       fast and C functions that every Lua function may call;
                        they call nothing unless an arrow says so
  depth NAME N          at most N frames of NAME in a stack
  when NAME: OTHER=N    stacks that hold NAME hold exactly N frames of OTHER;
                        OTHER=N..M a range. Several OTHER may follow
  own NAME PERCENT      at most this share of samples has NAME as its innermost
                        Lua function: a cut-off callee shows here
  min NAME PERCENT      at least this share of samples holds NAME
  at FILE LINE NAME     a function that no source file defines, and where it says it is defined
  misnamed PERCENT      at most this share of samples holds a function under a wrong name or line (0)
  gone PERCENT          at most this share of samples holds a function that was collected
                        before it could be named (0.2)
  owner NAME WORK       samples with NAME count for WORK where the outer frames are cut off
  native PERCENT        at most this share of samples has no Lua frame (1)
  alias NAME NAME...    further names of a fast function
  also NAME OTHER...    the function that the source calls NAME may be printed as OTHER too
  generated NAME...     functions that no source file defines
  truncated             stacks deeper than the recorder's limit are expected
"""
import os
import re
import shutil
import subprocess

NATIVE = r"[^;]+"
ANON = r"[^;+]+\+0x[0-9a-f]+"
PIECES = {
    # First function of the process up to and with main(); of a stripped program only offsets.
    "start": r"(?:_start \([^;]*\)|%s);(?:__libc_start_main[^ ;]* \([^;]*\)|%s);"
             r"(?:(?:__libc_start_call_main \([^;]*\)|%s);)?(?:main \([^;]*\)|%s)" % ((ANON,) * 4),
    # The same without main(), which may have jumped on to another function.
    "origin": r"(?:_start \([^;]*\)|%s);(?:__libc_start_main[^ ;]* \([^;]*\)|%s)" % ((ANON,) * 2),
    # Before main() runs, and after it has returned.
    "around": r"[^;]*(?: \(ld-linux[^;]*\)|ld-linux[^;]*)(?:;[^;]+)*"
              r"|(?:_start \([^;]*\)|%s)(?:;__libc_start_main[^;]*)?(?:;[^;]*(?:\.so[^;]*|vdso[^;]*))*" % ANON,
    # First function of a POSIX thread.
    "thread": r"(?:(?:__clone3?|clone3?|__GI___clone3?) \([^;]*\)|%s);(?:start_thread \([^;]*\)|%s)"
              % (ANON, ANON),
    # How C code enters the VM.
    "call": r"(?:lua_[a-z]*call|lua_cpcall|lua_resume|lj_vm_[a-z]*|%s)(?: \([^;]*\))?" % ANON,
    "any": NATIVE,
    "some": r"[^;]+(?:;[^;]+)*",
    "more": r"(?:;[^;]+)*",
}
LUA_KINDS = ("lua", "jit", "inlined")
MAIN = "main chunk"


class GraphError(Exception):
    pass


class Graph:
    def __init__(self, path):
        self.path = path
        self.edges = {}
        self.roots, self.native_roots, self.foreign_roots = [], [], []
        self.entries, self.builtins = set(), set()
        self.depth, self.when, self.own, self.min = {}, {}, {}, {}
        self.native, self.gone, self.misnamed = 1.0, 0.2, 0.0
        self.owners = {}
        self.aliases = {}
        self.truncated = False
        self.pieces = dict(PIECES)
        self.between, self.also = {}, {}
        self.sources, self.generated = [], set()
        self.definitions = {}  # (file, line) -> name
        self.lines = {}        # (file, first line) -> last line
        self._read(path, 0)
        if not self.native_roots:
            self.native_roots = [piece("{start}{more}"), piece("{thread}{more}")]
        self.native_roots.append(piece("{around}"))
        self._index_sources()
        self.reach = {}

    # ---- reading ----

    def _read(self, path, level):
        if level > 4:
            raise GraphError("%s: includes go too deep" % path)
        with open(path) as file:
            for number, line in enumerate(file, 1):
                line = re.sub(r"(^|\s)#.*", "", line).strip()
                if not line:
                    continue
                try:
                    self._line(line, path, level)
                except (ValueError, IndexError, re.error) as error:
                    raise GraphError("%s:%d: %s: %s" % (path, number, line, error))

    def _line(self, line, path, level):
        if " -> " in line:
            callers, callees = line.split(" -> ")
            for caller in callers.strip().split("|"):
                for callee in callees.split():
                    self._edge(canonical(caller.strip()), callee)
            return
        word, _, rest = line.partition(" ")
        names = [canonical(name) for name in rest.split()]
        here = os.path.dirname(path)
        if word == "source":
            self.sources += [os.path.join(here, name) for name in rest.split()]
        elif word == "include":
            self._read(os.path.join(here, rest.strip()), level + 1)
        elif word == "root":
            self.roots.append(piece(rest, self.pieces))
        elif word == "define":
            name, regex = rest.split(None, 1)
            self.pieces[name] = "(?:%s)" % piece(regex, self.pieces).pattern
        elif word == "root-foreign":
            self.foreign_roots.append(piece(rest, self.pieces))
        elif word == "root-native":
            self.native_roots.append(piece(rest, self.pieces))
        elif word == "between":
            caller, callee, regex = rest.split(None, 2)
            self.between[(canonical(caller), canonical(callee))] = piece(regex, self.pieces)
        elif word == "entry":
            self.entries.update(names)
        elif word == "builtin":
            self.builtins.update(names)
        elif word == "depth":
            self.depth[names[0]] = int(names[1])
        elif word == "when":
            name, counts = rest.split(":", 1) if ": " in rest else (None, None)
            if name is None:
                raise ValueError("`when NAME: OTHER=N` expected")
            for count in counts.split():
                other, span = count.rsplit("=", 1)
                low, _, high = span.partition("..")
                self.when.setdefault(canonical(name.strip()), []).append(
                    (canonical(other), int(low), int(high or low)))
        elif word == "own":
            self.own[names[0]] = float(names[1])
        elif word == "min":
            self.min[names[0]] = float(names[1])
        elif word == "native":
            self.native = float(names[0])
        elif word == "at":
            file, number, name = rest.rsplit(None, 2)
            self.definitions[(file, int(number))] = canonical(name)
        elif word == "misnamed":
            self.misnamed = float(names[0])
        elif word == "gone":
            self.gone = float(names[0])
        elif word == "owner":
            self.owners[names[0]] = names[1]
        elif word == "alias":
            for name in names[1:]:
                self.aliases[name] = names[0]
        elif word == "also":
            self.also.setdefault(names[0], set()).update(names[1:])
        elif word == "generated":
            self.generated.update(names)
        elif word == "truncated":
            self.truncated = True
        else:
            raise ValueError("unknown keyword")

    def _edge(self, caller, callee):
        mode = "vm"
        for suffix, name in (("/c?", "maybe"), ("/c", "native")):
            if callee.endswith(suffix):
                callee, mode = callee[:-len(suffix)], name
                break
        modes = self.edges.setdefault(caller, {}).setdefault(canonical(callee), set())
        modes.update(("vm", "native") if mode == "maybe" else (mode,))

    def _index_sources(self):
        named = re.compile(r"(?:function\s+([\w.:]+)\s*\()|(?:([\w.]+)\s*=\s*function\b)")
        for source in self.sources:
            base = os.path.basename(source)
            with open(source, errors="replace") as file:
                for number, line in enumerate(file, 1):
                    found = named.search(line)
                    tag = re.search(r"--@(\w+)", line)
                    if tag:
                        self.definitions[(base, number)] = "@" + tag.group(1)
                    elif found:
                        self.definitions[(base, number)] = found.group(1) or found.group(2)
            self.definitions[(base, 0)] = MAIN
            self._line_ranges(source, base)

    def _line_ranges(self, source, base):
        """First and last line of every function, as LuaJIT's own listing says."""
        if not shutil.which("luajit"):
            return
        listing = subprocess.run(["luajit", "-bl", source], capture_output=True, text=True,
                                 errors="replace", timeout=20)
        for first, last in re.findall(r"^-- BYTECODE -- .*:(\d+)-(\d+)$", listing.stdout, re.M):
            self.lines[(base, int(first))] = int(last)

    # ---- questions ----

    def functions(self):
        names = set(self.edges) | self.builtins | self.entries
        for callees in self.edges.values():
            names.update(callees)
        return names

    def lint(self):
        """Complaints about names that no source defines, and functions nothing reaches."""
        known = set(self.definitions.values()) | self.generated
        unknown = [name for name in self.functions()
                   if name != MAIN and name not in known and not is_builtin(name)]
        out = ["%s: no source defines it" % name for name in sorted(unknown)]
        seen, todo = set(), list(self.entries)
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += self.edges.get(name, {})
        out += ["%s: nothing reaches it" % name for name in sorted(self.functions() - seen - self.builtins)]
        rules = set(self.own) | set(self.min) | set(self.depth) | set(self.when)
        rules |= {other for counts in self.when.values() for other, _, _ in counts}
        out += ["%s: a rule for a function that is in no call" % name
                for name in sorted(rules - self.functions())]
        if not self.entries and not self.native >= 100:
            out.append("no entry")
        if not self.roots and not self.native >= 100:
            out.append("no root")
        return out

    def reachable(self, caller, callee):
        """May callee run below caller, with any number of calls between that are not shown?"""
        if caller not in self.reach:
            seen, todo = set(), [caller]
            while todo:
                for name in self.edges.get(todo.pop(), {}):
                    if name not in seen:
                        seen.add(name)
                        todo.append(name)
            self.reach[caller] = seen
        return callee in self.reach[caller]


def piece(regex, pieces=PIECES):
    for name, text in pieces.items():
        regex = regex.replace("{%s}" % name, text)
    return re.compile(regex.strip())


def canonical(name):
    return MAIN if name == "<main>" else name


def is_builtin(name):
    if name in BARE_BUILTINS:
        return True
    return "." in name and name.split(".")[0] in BUILTIN_TABLES


BARE_BUILTINS = set("""assert collectgarbage dofile error gcinfo getfenv getmetatable ipairs ipairs_aux load
loadfile loadstring module newproxy next pairs pcall print rawequal rawget rawlen rawset require select setfenv
setmetatable tonumber tostring type unpack xpcall""".split())
BUILTIN_TABLES = {"string", "table", "math", "coroutine", "io", "os", "debug", "jit", "bit", "ffi", "package", "buffer"}
