#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""pprof_check.py FILE JSON...: reads pprof files byte by byte and believes nothing: one gzip member, known
fields only, strings, ids and references, labels, sums. Each FILE is followed by the same profile as json."""
import json
import sys
import zlib

VARINT, BYTES = 0, 2
# field: (name, repeated, what it holds)
VALUE_TYPE = {1: ("type", False, "string"), 2: ("unit", False, "string")}
LABEL = {1: ("key", False, "string"), 2: ("str", False, "string"), 3: ("num", False, "int"),
         4: ("num_unit", False, "string")}
SAMPLE = {1: ("location_id", True, "packed"), 2: ("value", True, "packed"), 3: ("label", True, LABEL)}
MAPPING = {1: ("id", False, "int"), 2: ("memory_start", False, "int"), 3: ("memory_limit", False, "int"),
           4: ("file_offset", False, "int"), 5: ("filename", False, "string"),
           6: ("build_id", False, "string"), 7: ("has_functions", False, "int"),
           8: ("has_filenames", False, "int"), 9: ("has_line_numbers", False, "int"),
           10: ("has_inline_frames", False, "int")}
LINE = {1: ("function_id", False, "int"), 2: ("line", False, "int"), 3: ("column", False, "int")}
LOCATION = {1: ("id", False, "int"), 2: ("mapping_id", False, "int"), 3: ("address", False, "int"),
            4: ("line", True, LINE), 5: ("is_folded", False, "int")}
FUNCTION = {1: ("id", False, "int"), 2: ("name", False, "string"), 3: ("system_name", False, "string"),
            4: ("filename", False, "string"), 5: ("start_line", False, "int")}
PROFILE = {1: ("sample_type", True, VALUE_TYPE), 2: ("sample", True, SAMPLE), 3: ("mapping", True, MAPPING),
           4: ("location", True, LOCATION), 5: ("function", True, FUNCTION),
           6: ("string_table", True, "text"), 9: ("time_nanos", False, "int"),
           10: ("duration_nanos", False, "int"), 11: ("period_type", False, VALUE_TYPE),
           12: ("period", False, "int"), 13: ("comment", True, "packed"),
           14: ("default_sample_type", False, "string")}
TEXTS = {"pid": "num", "tid": "num", "trace": "num", "process": "str", "thread": "str", "kind": "str"}
KINDS = "lua jit inlined fast cfunction native kernel state error".split()


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if not byte & 0x80:
            assert value < 1 << 64 and (byte or shift == 7), "a number of more bits or bytes than it needs"
            return value, at


def packed(data):
    values, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


def decode(data, fields):
    """A message as a dictionary; a field that is not in the file is 0, or an empty list."""
    message = {name: [] if repeated else 0 for name, repeated, _ in fields.values()}
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        name, repeated, holds = fields[key >> 3]
        number = holds in ("int", "string")
        assert key & 7 == (VARINT if number else BYTES), (name, key & 7)
        value, at = varint(data, at)
        if not number:
            assert value <= len(data) - at, name
            part, at = bytes(data[at:at + value]), at + value
            value = (part.decode("utf-8", "strict") if holds == "text" else
                     packed(part) if holds == "packed" else decode(part, holds))
        if holds == "packed":
            message[name] += value
        elif repeated:
            message[name].append(value)
        else:
            assert message[name] == 0, "twice: " + name
            message[name] = value
    return message


def gunzip(path):
    with open(path, "rb") as file:
        data = file.read()
    assert data[4:8] == bytes(4), "the time in the header would make equal profiles differ"
    member = zlib.decompressobj(16 + zlib.MAX_WBITS)
    text = member.decompress(data) + member.flush()
    assert member.eof and not member.unused_data
    return memoryview(text)


def by_id(messages):
    ids = [message["id"] for message in messages]
    assert sorted(ids) == list(range(1, len(ids) + 1)), "ids are not 1, 2, 3, ..."
    return {message["id"]: message for message in messages}


def name_strings(message, fields, strings, used):
    """Numbers of strings become strings."""
    for name, _, holds in fields.values():
        if holds == "string":
            used.add(message[name])
            message[name] = strings[message[name]]
        elif isinstance(holds, dict):
            parts = message[name] if isinstance(message[name], list) else [message[name]]
            for part in parts:
                name_strings(part, holds, strings, used)


def check_strings(profile):
    strings = profile["string_table"]
    assert strings[0] == "" and len(set(strings)) == len(strings)
    for text in strings:
        assert all(c.isprintable() or ord(c) > 0x9f for c in text), repr(text)
    used = set(profile["comment"]) | {0}
    name_strings(profile, PROFILE, strings, used)
    assert used == set(range(len(strings))), "strings that nothing refers to"
    profile["comment"] = [strings[number] for number in profile["comment"]]


def check_references(profile):
    functions, locations = by_id(profile["function"]), by_id(profile["location"])
    mappings = by_id(profile["mapping"])
    used = {"function": set(), "location": set(), "mapping": {0, 1}}
    for location in locations.values():
        mapping = location["mapping_id"]
        used["mapping"].add(mapping)
        if mapping:
            assert mappings[mapping]["memory_start"] <= location["address"]
            assert location["address"] < mappings[mapping]["memory_limit"] or location["address"] == 2**64 - 1
        assert location["line"]
        for line in location["line"]:
            used["function"].add(line["function_id"])
            assert functions[line["function_id"]]["name"] or location["address"]
    for sample in profile["sample"]:
        assert sample["location_id"] and len(sample["value"]) == len(profile["sample_type"])
        used["location"] |= set(sample["location_id"])
    assert used["function"] == set(functions) and used["location"] == set(locations)
    assert used["mapping"] <= set(mappings) | {0, 1}
    keys = [tuple(f[k] for k in ("name", "system_name", "filename", "start_line")) for f in functions.values()]
    assert all(mapping["filename"] for mapping in mappings.values())
    return len(keys)


def check_labels(sample):
    """The labels as a dictionary."""
    labels = {}
    for label in sample["label"]:
        assert label["key"] in TEXTS and label["key"] not in labels, label
        assert not label["num_unit"] and not (label["str"] and label["num"]), label
        labels[label["key"]] = label[TEXTS[label["key"]]]
        assert TEXTS[label["key"]] == "num" or labels[label["key"]], label
    assert {"pid", "kind"} <= set(labels) and labels["kind"] in KINDS
    return labels


def saturated(number):
    return min(number, 2**63 - 1)


def check(path, profile_json):
    profile = decode(gunzip(path), PROFILE)
    with open(profile_json, "rb") as file:
        expected = json.load(file)
    check_strings(profile)
    check_references(profile)
    types = [(t["type"], t["unit"]) for t in profile["sample_type"]]
    assert types == [("samples", "count"), ("cpu", "nanoseconds")], types
    assert profile["default_sample_type"] == "cpu"
    assert profile["period_type"] == {"type": "cpu", "unit": "nanoseconds"}
    quality = expected["quality"]
    assert profile["period"] == 10**9 // quality["rate"]
    assert abs(profile["duration_nanos"] - quality["seconds"] * 1e9) < 1000
    assert profile["time_nanos"] // 10**9 > 1_500_000_000
    assert profile["comment"][0].replace(",", "").startswith("%d samples in " % quality["samples"])
    pids = {}
    for sample in profile["sample"]:
        assert sample["value"][1] == saturated(sample["value"][0] * profile["period"])
        labels = check_labels(sample)
        pids[labels["pid"]] = pids.get(labels["pid"], 0) + sample["value"][0]
    for stack in expected["stacks"]:
        pids[stack["pid"]] -= stack["count"]
    assert not any(pids.values()), pids
    print("%s: ok, %d samples, %d locations, %d functions, %d mappings" % (
        path.rpartition("/")[2], sum(sample["value"][0] for sample in profile["sample"]),
        len(profile["location"]), len(profile["function"]), len(profile["mapping"])))


for i in range(1, len(sys.argv), 2):
    check(sys.argv[i], sys.argv[i + 1])
