#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""output_check.py OUTPUT_FILES: holds every text format against docs/formats.md, byte for byte, and
formats made from msp against those made directly."""
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from html.parser import HTMLParser

KINDS = "lua jit inlined fast cfunction native kernel state error".split()
FRAME = {"kind", "name", "file", "line", "defined", "object", "address", "certain", "trace"}
QUALITY = {"samples", "lost", "whole", "truncated", "errors", "ways", "estimated", "seconds", "rate",
           "bpf_ns_per_sample", "bpf_ns_median", "bpf_ns_p99"}
# What the text rule escapes, beside bytes that are no valid UTF-8.
ESCAPED = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
FOLDED_FRAME = re.compile(r"(?:[^;\\%s]|\\\\|\\x[0-9a-f]{2})+" % ESCAPED)
JSON_TEXT = re.compile(r"(?:[^\\%s]|[\x00-\x1f\x7f]|\\\\|\\x[0-9a-f]{2})*" % ESCAPED)


def original(text):
    """The bytes that the text rule was given."""
    def byte(match):
        return b"\\" if match[0] == b"\\\\" else bytes([int(match[0][2:], 16)])
    return re.sub(rb"\\\\|\\x[0-9a-f]{2}", byte, text.encode())


def check_folded(path):
    """Stacks and counts: {tuple of frames: count}"""
    stacks = {}
    with open(path, "rb") as file:
        data = file.read()
    assert data.endswith(b"\n")
    for line in data.decode("utf-8", "strict").split("\n")[:-1]:
        stack, _, count = line.rpartition(" ")
        assert re.fullmatch(r"[1-9][0-9]*", count), line
        frames = tuple(stack.split(";"))
        for frame in frames:
            assert FOLDED_FRAME.fullmatch(frame), repr(frame)
        assert frames not in stacks, line
        stacks[frames] = int(count)
    return stacks


def check_text(text):
    assert text is None or JSON_TEXT.fullmatch(text), repr(text)


def check_frame(frame):
    assert FRAME <= set(frame) <= FRAME | {"vm"}, frame
    assert frame["kind"] in KINDS
    for key in ("name", "file", "object"):
        check_text(frame[key])
    for key in ("line", "defined", "trace"):
        assert frame[key] is None or isinstance(frame[key], int) and frame[key] >= 0
    assert frame["address"] is None or re.fullmatch(r"0x[0-9a-f]{1,16}", frame["address"])
    assert frame["certain"] in (True, False) and frame.get("vm", True) is True
    if frame["kind"] in ("lua", "jit", "inlined"):
        assert frame["defined"] is not None


def check_quality(quality):
    assert set(quality) == QUALITY, quality
    counts = list(quality["errors"].values())
    assert counts == sorted(counts, reverse=True)
    assert all(isinstance(quality[key], int) for key in ("samples", "lost", "whole", "truncated"))
    assert math.isfinite(quality["seconds"])


def constant(text):
    raise AssertionError("not JSON: " + text)


def check_json(path):
    with open(path, "rb") as file:
        profile = json.loads(file.read().decode("utf-8", "strict"), parse_constant=constant)
    assert profile["schema"] == 1 and profile["type"] == "profile"
    assert set(profile) == {"schema", "type", "meta", "quality", "names", "events", "stacks"}
    check_quality(profile["quality"])
    for key, value in profile["meta"].items():
        check_text(key)
        check_text(value)
    for name in profile["names"]:
        assert set(name) == {"pid", "tid", "name"}
        check_text(name["name"])
    seen = set()
    for stack in profile["stacks"]:
        assert set(stack) == {"pid", "tid", "count", "frames"}
        assert stack["count"] > 0
        for frame in stack["frames"]:
            check_frame(frame)
        key = json.dumps([stack["pid"], stack["tid"], stack["frames"]])
        assert key not in seen
        seen.add(key)
    return profile


class Page(HTMLParser):
    """Elements of a page, and what its data element holds."""
    def __init__(self):
        super().__init__()
        self.elements, self.data, self.inside = [], "", False

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = ("id", "data") in attrs

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.data += data


def check_html(path):
    """One file, nothing fetched, the data within its element."""
    with open(path, "rb") as file:
        text = file.read().decode("utf-8", "strict")
    page = Page()
    page.feed(text)
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 2 and "img" not in tags and "link" not in tags
    for _, attrs in page.elements:
        assert not {"src", "href", "onerror", "onload", "onclick"} & set(attrs), attrs
    assert "<" not in page.data
    data = json.loads(page.data, parse_constant=constant)
    assert len(data["names"]) == len(data["kinds"]) and max(data["kinds"]) <= len(KINDS)
    check_quality(data["quality"])
    return data


class Checker:
    def __init__(self, program, directory):
        self.program, self.directory = program, directory

    def make(self, profile, how):
        path = os.path.join(self.directory, "%s-%s" % (profile, how.replace(":", "-")))
        subprocess.run([self.program, profile, how, path], check=True)
        return path

    def same(self, profile, how):
        with open(self.make(profile, how), "rb") as a:
            with open(self.make(profile, how + (":" if ":" not in how else ",") + "via-msp"), "rb") as b:
                assert a.read() == b.read(), "%s of %s differs when made from msp" % (how, profile)


def check_server(c):
    stacks = check_folded(c.make("server", "folded"))
    assert sum(stacks.values()) == 2282
    escape = [frames for frames in stacks if frames[-1] == "escape (app/json.lua:77)_[i]"]
    assert escape and all(frames[0] == "_start (nginx)" for frames in escape)
    lines = check_folded(c.make("server", "folded:lines"))
    assert any(frames[-1] == "escape (app/json.lua:77):81_[i]" for frames in lines)
    assert any("~clamp (app/vec.lua:12):14_[i]" in frames for frames in lines)
    threads = check_folded(c.make("server", "folded:threads"))
    assert all(frames[0] == "thread 4711" for frames in threads)
    profile = check_json(c.make("server", "json"))
    assert profile["events"] == [{"pid": 4711, "g": "0x7f0000001230", "event": "traces made", "count": 12}]
    assert sum(stack["count"] for stack in profile["stacks"]) == 2282
    assert profile["names"] == [{"pid": 4711, "tid": 0, "name": "nginx"}]
    estimates = [f for s in profile["stacks"] for f in s["frames"] if not f["certain"]]
    assert estimates and estimates[0]["name"] == "clamp" and estimates[0]["trace"]
    check_html(c.make("server", "html"))


def check_hostile(c):
    for how in ("folded", "folded:lines", "folded:threads"):
        stacks = check_folded(c.make("hostile", how))
        assert sum(stacks.values()) == 11395, sum(stacks.values())
        assert {frames[0].split(" ")[0] for frames in stacks} == {"process"}
    frames = {original(frame) for stack in stacks for frame in stack}
    assert b"semi;colon (semi;colon)" in frames
    assert b"invalid \xff\xfe bytes (invalid \xff\xfe bytes)" in frames
    assert b"\\x3b (\\x3b)" in frames and b"back\\slash (back\\slash)" in frames
    profile = check_json(c.make("hostile", "json"))
    names = {original(f["name"]) for s in profile["stacks"] for f in s["frames"]}
    assert b"overlong \xc0\xaf" in names and b"" in names
    assert max(map(len, names)) == 10000
    data = check_html(c.make("hostile", "html:threads"))
    assert any("</script><img" in name for name in data["names"])


def main(program):
    with tempfile.TemporaryDirectory() as directory:
        c = Checker(program, directory)
        check_server(c)
        check_hostile(c)
        for profile in ("server", "hostile"):
            for how in ("folded", "folded:lines", "folded:threads", "json", "html", "msp", "pprof",
                        "speedscope", "speedscope:threads"):
                c.same(profile, how)
    print("ok")


main(sys.argv[1])
