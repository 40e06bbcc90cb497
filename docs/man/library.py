#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Man pages of the library, made from its headers: moonspy(3), and a page a section of them.

usage: library.py VERSION FOLDER HEADER...     writes FOLDER/NAME.3 for every public function
       library.py --list HEADER...             prints the names of the pages
"""
import os
import re
import sys


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


class Page:
    def __init__(self, title, header):
        self.title, self.header = title, header
        self.items, self.functions = [], []  # (kind, doc, text)

    @property
    def name(self):
        return self.functions[0]


def comment_text(lines):
    """Paragraphs of a comment; those indented by a tab are code."""
    text = re.sub(r"^/\*[ \n]?|\s*\*/$", "", "\n".join(lines))
    text = "\n".join(re.sub(r"^ \* ?", "", line) for line in text.split("\n"))
    text = re.sub(r"\n- ", r"\n\n- ", text)
    return [part.strip("\n") for part in re.split(r"\n[ ]*\n", text) if part.strip()]


def take(lines, at, done):
    """The lines from at up to one that done() says is the last."""
    end = at
    while not done(lines[end]):
        end += 1
    return lines[at:end + 1], end + 1


def parse(path):
    with open(path) as file:
        lines = file.read().split("\n")
    overview, pages, page, doc, at = None, [], None, None, 0
    header = "moonspy/" + os.path.basename(path)
    page = Page("", header)
    while at < len(lines):
        line = lines[at]
        if line.startswith("/*"):
            block, at = take(lines, at, lambda l: "*/" in l)
            found = re.match(r"/\* ---- (.*) ---- \*/", line)
            if found:
                page = Page(found.group(1), header)
                pages.append(page)
                doc = None
            elif "SPDX" not in line:
                doc = comment_text(block)
                overview = overview or doc
        elif line.startswith("MSP_API"):
            block, at = take(lines, at, lambda l: l.endswith(";"))
            text = " ".join(part.strip() for part in block).replace("MSP_API ", "")
            name = re.search(r"(msp_\w+)\(", text).group(1)
            page.functions.append(name)
            page.items.append(("function", doc, text))
            doc = None
            if page not in pages:
                pages.append(page)
        elif re.match(r"(struct|enum) \w+ \{", line):
            block, at = take(lines, at, lambda l: "};" in l)
            page.items.append(("data", doc, "\n".join(block)))
            doc = None
        elif line.startswith("#define") and line.endswith("\\"):
            block, at = take(lines, at, lambda l: not l.endswith("\\"))
            page.items.append(("data", doc, "\n".join(block)))
            doc = None
        else:
            if line.startswith("struct") and doc:
                page.items.append(("text", doc, ""))
            if line.strip() and doc is not overview:
                doc = None
            at += 1
    return overview, join(pages)


def join(pages):
    """A section without functions belongs to the next one that has some."""
    out, waiting = [], []
    for page in pages:
        if page.functions:
            page.items = waiting + page.items
            out.append(page)
            waiting = []
        else:
            waiting += page.items
    return out


def put_paragraphs(out, parts):
    for part in parts or []:
        if part.startswith("\t"):
            out.append(".PP\n.nf\n" + "\n".join("    " + escape(line[1:].replace("\t", "    ")) for line in part.split("\n")) + "\n.fi")
        else:
            out.append(".PP\n" + "\n".join(escape(line.strip()) for line in part.split("\n")))


def prototype(text):
    return ".nf\n.BI \"" + escape(text).replace('"', "\\(dq") + "\"\n.fi"


def page_text(page, version):
    out = ['.\\" Generated from ' + page.header + ".",
           '.TH %s 3 "" "moonspy %s" "Library Functions"' % (page.name.upper(), version), ".SH NAME",
           ", ".join(page.functions).replace("-", "\\-") + " \\- " + (escape(page.title.lower()) or "about the library"),
           ".SH SYNOPSIS", ".B #include <%s>" % page.header]
    for kind, _, text in page.items:
        if kind == "function":
            out.append(".PP\n" + prototype(text))
    out.append(".SH DESCRIPTION")
    last = None
    for kind, doc, text in page.items:
        if kind == "text":
            put_paragraphs(out, doc)
        elif kind == "function":
            name = re.search(r"(msp_\w+)\(", text).group(1)
            if doc or last != "function":
                out.append(".SS " + name + "()")
            else:
                out.append(".PP\n.B " + name + "()")
            put_paragraphs(out, doc)
        last = kind
    if any(kind == "data" for kind, _, _ in page.items):
        out.append(".SH DATA")
    for kind, doc, text in page.items:
        if kind == "data":
            put_paragraphs(out, doc)
            out.append(".PP\n.nf\n" + "\n".join(escape(line.replace("\t", "    ")) for line in text.split("\n")) + "\n.fi")
    out.append(".SH SEE ALSO\n.BR moonspy (3)")
    return "\n".join(out) + "\n"


def overview_text(overview, pages, version):
    out = ['.\\" Generated from moonspy/moonspy.h.',
           '.TH MOONSPY 3 "" "moonspy %s" "Library Functions"' % version, ".SH NAME",
           "libmoonspy \\- whole stacks of LuaJIT processes: C, Lua and compiled Lua", ".SH SYNOPSIS",
           ".B #include <moonspy/moonspy.h>", ".PP", ".B cc ... $(pkg\\-config \\-\\-cflags \\-\\-libs moonspy)",
           ".SH DESCRIPTION"]
    put_paragraphs(out, overview)
    out.append(".SH PAGES")
    for page in pages:
        out.append(".TP\n.BR %s (3)\n%s" % (page.name, escape(page.title) or "About the library"))
    return "\n".join(out) + "\n"


def main(argv):
    listing = argv[0] == "--list"
    parsed = [parse(path) for path in argv[1 if listing else 2:]]
    pages = [page for _, found in parsed for page in found]
    if listing:
        print("\n".join(["moonspy"] + [name for page in pages for name in page.functions]))
        return
    version, folder = argv[0], argv[1]
    os.makedirs(folder, exist_ok=True)
    texts = {"moonspy": overview_text(parsed[0][0], pages, version)}
    for page in pages:
        for name in page.functions:
            texts[name] = ".so man3/%s.3\n" % page.name
        texts[page.name] = page_text(page, version)
    for name, text in texts.items():
        with open(os.path.join(folder, name + ".3"), "w") as file:
            file.write(text)


main(sys.argv[1:])
