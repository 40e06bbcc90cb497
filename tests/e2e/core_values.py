#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Do the variables that moonspy shows agree with what the program's debug library said?

    core_values.py TRUTH JSON [stripped]
"""
import json
import sys

problems = []


def wrong(text):
    problems.append(text)


def read_truth(path):
    frames = []
    with open(path, encoding="latin-1") as f:
        for line in f:
            words = line.rstrip("\n").split(" ", 2)
            if words[0] == "frame":
                frames.append({"defined": int(words[1]), "local": [], "vararg": [], "upvalue": []})
            elif words[0] in ("local", "vararg", "upvalue"):
                frames[-1][words[0]].append((words[1], words[2]))
    return frames


def unescape(text):
    out, i = "", 0
    while i < len(text):
        if text[i:i + 2] == "\\x":
            out += chr(int(text[i + 2:i + 4], 16))
            i += 4
        elif text[i:i + 2] == "\\\\":
            out += "\\"
            i += 2
        else:
            out += text[i]
            i += 1
    return out


def quoted(text):
    """Like ("%q"):format(s):gsub("\n", "n")."""
    out = ""
    for c in text:
        out += {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\0": "\\0", "\r": "\\r"}.get(c, c)
    return f'"{out}"'


def as_lua(value):
    kind = value["type"]
    if kind == "string":
        text = unescape(value["value"])
        if value["cut"]:
            return ("cut", quoted(text)[:-1], value["length"])
        return quoted(text)
    if kind == "number":
        if value["value"] is None:
            return value["text"]
        return f"{value['value']:.14g}"
    if kind == "boolean":
        return str(value["value"]).lower()
    return kind


def same(value, truth):
    mine = as_lua(value)
    if isinstance(mine, tuple):
        return truth.startswith(mine[1]) and mine[2] >= len(mine[1]) - 1
    return mine == truth or (mine.replace("e+", "e+") == truth)


def check_list(frame, what, mine, truth, by_name):
    if len(mine) != len(truth):
        wrong(f"{frame['name']}: {what}: {[m['name'] for m in mine]} are not {[t[0] for t in truth]}")
        return
    for m, (name, text) in zip(mine, truth):
        if by_name and m["name"] != name:
            wrong(f"{frame['name']}: {what} {m['name']} is called {name}")
        if not same(m["value"], text):
            wrong(f"{frame['name']}: {what} {name} is {text}, not {json.dumps(m['value'])[:200]}")


def text_of(frames, function, name):
    for frame in frames:
        for m in frame["locals"] if frame["name"] == function else []:
            if m["name"] == name:
                return m["value"]
    wrong(f"{function} has no local {name}")
    return {"type": "none", "entries": [], "cut": None}


def entries(value):
    return {as_lua(e["key"]): e["value"] for e in value["entries"] or []}


def check_tables(frames):
    listed = entries(text_of(frames, "tables", "list"))
    if {k: as_lua(v) for k, v in listed.items()} != {"1": "10", "2": "20", "3": "30", "5": "50"}:
        wrong(f"list: {listed}")
    mapped = {k: as_lua(v) for k, v in entries(text_of(frames, "tables", "map")).items()}
    if mapped != {'"name"': '"x"', "true": "1", "1.5": '"half"', '"not a name"': "2"}:
        wrong(f"map: {mapped}")
    inner = entries(text_of(frames, "tables", "nested")).get('"a"')
    if not inner or entries(inner)['"b"']["entries"] is not None:
        wrong("nested: two levels, and no third")
    cycle = text_of(frames, "tables", "cycle")
    if entries(cycle)['"self"']["address"] != cycle["address"]:
        wrong("cycle")
    wide = text_of(frames, "tables", "wide")
    if not wide["cut"] or len(wide["entries"]) > 100:
        wrong("wide is not cut")
    empty = text_of(frames, "tables", "empty")
    if empty["entries"] != [] or empty["cut"]:
        wrong("empty")


def check_functions(frames):
    lua = text_of(frames, "functions", "lua")
    if lua["function"]["name"] != "show" or lua["function"]["kind"] != "lua":
        wrong(f"lua: {lua}")
    if text_of(frames, "functions", "fast")["function"]["name"] != "string.format":
        wrong("fast")
    wanted = {"i64": ("int64_t", "-5"), "u64": ("uint64_t", "9223372036854775808"), "point": ("struct point", None),
              "pointer": ("const char *", "0x1234"), "array": ("int [3][4]", None), "color": ("enum color", "1"),
              "callback": ("int (*)()", "0x0")}
    if text_of(frames, "main chunk", "ok")["value"] is False:
        return  # a build without FFI
    for name, (ctype, content) in wanted.items():
        value = text_of(frames, "cdatas", name)
        if (value.get("ctype"), value.get("content")) != (ctype, content):
            wrong(f"cdata {name}: {value}")


def main():
    with open(sys.argv[2], encoding="utf-8") as f:
        dump = json.load(f)
    stripped = "stripped" in sys.argv
    frames = [f for f in dump["threads"][0]["stack"] if f["kind"] in ("lua", "jit") and f["name"] != "tell"]
    if stripped:
        names = [m["name"] for f in frames for m in f["locals"] + f["upvalues"]]
        values = [as_lua(m["value"]) for f in frames for m in f["locals"] + f["upvalues"] + f["varargs"]]
        if any(names):
            wrong(f"stripped, but there are names: {names}")
        for value in ('"text"', '"an upvalue"', '"vararg"', "42", "1.5"):
            if value not in values:
                wrong(f"stripped: {value} is not shown")
    else:
        frames = [f for f in frames if f["name"] != "tell"]
        truth = read_truth(sys.argv[1])
        if len(truth) != len(frames):
            wrong(f"{len(frames)} frames, not {len(truth)}")
        for frame, t in zip(frames, truth):
            check_list(frame, "locals", frame["locals"], t["local"], True)
            check_list(frame, "varargs", frame["varargs"], t["vararg"], False)
            check_list(frame, "upvalues", frame["upvalues"], t["upvalue"], True)
        check_tables(frames)
        check_functions(frames)
    for problem in problems:
        print(f"FAIL: values{' (stripped)' if stripped else ''}: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
