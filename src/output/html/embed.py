# SPDX-License-Identifier: MIT
"""embed.py HTML CSS JS... OUT: the page as two C arrays, what stands before and after the data.

The content security policy allows just these scripts by their hash: should a name ever get out of
its quotes, the browser would still not run it.
"""
import base64
import hashlib
import sys


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def c_array(name, text):
    data = text.encode()
    rows = [", ".join(map(str, data[i : i + 24])) for i in range(0, len(data), 24)]
    return "static const char %s[%d] = {\n\t%s};\n" % (name, len(data), ",\n\t".join(rows))


def main(html, css, *rest):
    script = "(() => {\n'use strict';\n%s})();\n" % "".join(map(read, rest[:-1]))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s'" % digest
    page = read(html)
    for mark, text in (("@POLICY@", policy), ("@STYLE@", read(css)), ("@SCRIPT@", script)):
        assert page.count(mark) == 1, mark
        page = page.replace(mark, text)
    head, tail = page.split("@DATA@")
    assert head.isascii() and tail.isascii()
    with open(rest[-1], "w", encoding="ascii") as out:
        out.write(c_array("page_head", head) + c_array("page_tail", tail))


main(*sys.argv[1:])
