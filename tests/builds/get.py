# SPDX-License-Identifier: MIT
"""Brings the builds of rows.py onto this machine: unpacked packages, trees built from source. All is cached."""
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CACHE = os.environ.get("MOONSPY_CACHE") or os.path.join(ROOT, ".cache")
JOBS = os.environ.get("JOBS", "2")


class Missing(Exception):
    """Cannot be had here; the reason is for the reader."""


def run(command, **kw):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, **kw)
    if done.returncode:
        raise Missing("%s: %s" % (" ".join(command[:3]), " | ".join(done.stdout.strip().splitlines()[-3:])))
    return done.stdout


def debs(*arguments):
    return run([os.path.join(ROOT, "scripts/debs"), *arguments], env=dict(os.environ, MOONSPY_CACHE=CACHE))


def folder(*key):
    """A folder of the cache that is complete once it has a file .done, and the name it is made under."""
    name = re.sub(r"[^a-z0-9]+", "-", "-".join(str(part) for part in key[:2]).lower()).strip("-")
    path = os.path.join(CACHE, "builds", name + "-" + hashlib.sha256(repr(key).encode()).hexdigest()[:8])
    return path, os.path.exists(os.path.join(path, ".done"))


def finished(path):
    with open(os.path.join(path, ".done"), "w", encoding="ascii"):
        pass
    return path


def source(suite, package, inside=""):
    """An unpacked source package, as it comes."""
    path, there = folder(suite, "source-" + package)
    if not there:
        shutil.rmtree(path, ignore_errors=True)
        debs("--source", "--orig", "--unpack", path, suite, package)
        finished(path)
    return os.path.join(path, package, inside)


def merge_usr(root):
    """Since trixie no package but base-files holds the links from /lib to /usr/lib."""
    for name in ("bin", "lib", "lib64", "sbin"):
        if not os.path.lexists(os.path.join(root, name)) and os.path.isdir(os.path.join(root, "usr", name)):
            os.symlink("usr/" + name, os.path.join(root, name))


def devices(root):
    """What a program needs besides its packages to run in its root."""
    for name, minor in (("null", 3), ("zero", 5), ("urandom", 9)):
        path = os.path.join(root, "dev", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not os.path.exists(path) and os.getuid() == 0:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
    for name in ("proc", "tmp", "w"):
        os.makedirs(os.path.join(root, name), exist_ok=True)


def packages(row):
    suite, names = row["packages"]
    path, there = folder(suite, "root-" + names[0], names, row.get("depends"))
    if not there:
        shutil.rmtree(path, ignore_errors=True)
        # One by one: what a mirror has no more of one package, it may have of the others.
        for name in names:
            try:
                debs(*(["--depends"] if row.get("depends") else []), "--unpack", path, suite, name)
            except Missing:
                debs("--unpack", path, suite, name)
        merge_usr(path)
        devices(path)
        finished(path)
    return path


def edit(tree, edits):
    for name, pattern, text in edits:
        path = os.path.join(tree, name)
        with open(path, encoding="utf-8") as file:
            old = file.read()
        new, count = re.subn(pattern, text, old, flags=re.S)
        if count != 1:
            raise Missing("%s: %d places for the edit, not 1" % (name, count))
        with open(path, "w", encoding="utf-8") as file:
            file.write(new)


def tree(row):
    """The row's tree, built; for a row of packages just so far that its headers are complete."""
    make = shlex.split(row.get("make", "")) if "packages" not in row else []
    key = (row["name"], "tree", row["tree"], make, row.get("edit"), row.get("strip"), "packages" in row)
    path, there = folder(*key)
    if there:
        return path
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(source(*row["tree"]), path, symlinks=True)
    edit(path, row.get("edit", ()))
    if "packages" in row:
        run(["make", "-C", path + "/src", "-j" + JOBS, "lj_ffdef.h"])
    else:
        run(["make", "-C", path + "/src", "-j" + JOBS, *make])
    if row.get("strip"):
        run([row.get("cross", "") + "strip", os.path.join(path, row["file"])])
    return finished(path)


def options(row):
    """What the compiler was told about the build's features."""
    return re.findall(r"-D\w+(?:=\w+)?", row.get("truth", "") + " " + row.get("make", ""))


def truth(row, path, work):
    """Fields of the layout by the tree's own headers."""
    with open(os.path.join(path, "src/lj_jit.h"), encoding="utf-8") as file:
        mcofs = ["-DHAVE_MCOFS"] if "mcofs" in file.read() else []
    probe = os.path.join(work, "probe")
    cross = row.get("cross")
    run([*([cross + "gcc", "-static"] if cross else ["cc"]), "-w", "-I", os.path.join(path, "src"), *options(row), *mcofs,
         "-o", probe, os.path.join(HERE, "probe.c")])
    lines = (line.split() for line in run([*row.get("emulator", []), probe]).splitlines())
    fields = {name: int(value) for name, value in lines}
    if "packages" in row or row.get("strip"):
        return fields
    file = os.path.join(path, row["file"])
    symbols = run(["nm", file])
    lowest = min(int(at, 16) for at in re.findall(r"^ +LOAD +0x\w+ 0x(\w+)", run(["readelf", "-lW", file]), re.M))
    for symbol, field in (("lj_vm_asm_begin", "vm_start"), ("lj_vm_ffi_call", "vm_end")):
        found = re.search(r"^([0-9a-f]+) . %s$" % symbol, symbols, re.M)
        if found:
            fields[field] = int(found.group(1), 16) - lowest
    return fields
