# SPDX-License-Identifier: MIT
"""The builds of LuaJIT that moonspy is held against: a row each, as data.

A row is either of Debian's packages, unpacked into a root of its own, or built here from one of
Debian's source packages. Fields:

  name      what the table calls it
  tree      (suite, source package[, folder in it]): where the truth is compiled, and what is built
  truth     options that Debian built its package with, for the truth
  packages  (suite, packages): unpacked; else the row is built from its tree
  file      the program or library with LuaJIT in it, in the root or in the tree
  run       command of a Lua program, in the root or the tree; None: nothing there runs Lua programs
  make      arguments of make
  edit      ((file, pattern, text), ...): changes to the tree, each must be found
  strip     the program is stripped
  startup   seconds of CPU time that the program needs to enter its script, with a margin [0.1]
  nginx     the program is nginx with the Lua module, under wrk's load
  workloads what it runs instead of the usual ones
  cross     prefix of a cross compiler's programs
  emulator  command that runs its programs
  fiber     fiber.c is built with the tree's LuaJIT in it, with these options, and is what runs
  ci        part of the quick selection: each layout once, seconds to build
"""

BOOKWORM = ("bookworm", "luajit")
BULLSEYE = ("bullseye", "luajit")
SID = ("sid", "luajit")
LUAJIT2 = ("bookworm", "luajit2")

LIBRARY = "usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2"

# A fork as Tarantool's since 2.10: a field after cur_L, a C frame that is 16 bytes larger.
FORK = (
    ("src/lj_obj.h", r"(  GCRef cur_L;[^\n]*\n)", r"\1  GCRef mem_L;\n"),
    ("src/vm_x64.dasc", r"(POSIX stack layout.*?CFRAME_SPACE,\taword)\*5", r"\1*7"),
    ("src/vm_x64.dasc", r"(SAVE_CFRAME,\taword \[rsp\+aword)\*4", r"\1*6"),
    ("src/lj_frame.h", r"(CFRAME_OFS_PREV\t\t)\(4\*8\)(\n#if LJ_GC64\n#define CFRAME_OFS_PC\t\t\(3\*8\))", r"\1(6*8)\2"),
    ("src/lj_frame.h", r"(LJ_NO_UNWIND\n#define CFRAME_SIZE\t\t\(12\*8\)\n#else\n#define CFRAME_SIZE\t\t)\(10\*8\)", r"\1(12*8)"),
)


def fork_states(vm):
    """Other states, as Tarantool has since 2.10: GC is 4. At calls they are stored, and BASE in g for its own profiler."""
    return (
        ("src/lj_obj.h", r"(  LJ_VMST_C,)", r"  LJ_VMST_LFUNC,\n  LJ_VMST_FFUNC,\n\1"),
        ("src/lj_obj.h", r"(  GCRef gcroot\[GCROOT_MAX\];[^\n]*\n)", r"\1  MRef top_frame;\n"),
        (vm, r"(\.macro \.ffunc_1, name\n  \|->ff_ \.\. name:\n)", r"\1  |  set_vmstate FFUNC\n"),
        (vm, r"(  case BC_IFUNCF:\n(?:    \|[^\n]*\n){3})",
         r"\1    |  set_vmstate INTERP\n    |  mov [DISPATCH+DISPATCH_GL(top_frame)], BASE\n    |  set_vmstate LFUNC\n"),
    )


def debian(name, suite, packages, file, run, tree, **more):
    return dict(name=name, packages=(suite, packages), file=file, run=run, tree=tree, **more)


def built(name, tree, make="", file="src/luajit", run=None, **more):
    # Static: each file is compiled once, not once more for the shared library.
    return dict(name=name, tree=tree, make="BUILDMODE=static " + make, file=file, run=run or ["src/luajit"], **more)


ROWS = [
    debian("bookworm luajit", "bookworm", ["luajit", "libluajit-5.1-2"], "usr/bin/luajit",
           ["usr/bin/luajit"], BOOKWORM, depends=True),
    debian("bookworm library", "bookworm", ["libluajit-5.1-2"], LIBRARY, None, BOOKWORM),
    debian("bookworm luajit2", "bookworm", ["libluajit2-5.1-2"], LIBRARY, None, LUAJIT2),
    debian("trixie luajit", "trixie", ["luajit", "libluajit-5.1-2"], "usr/bin/luajit",
           ["usr/bin/luajit"], ("trixie", "luajit"), depends=True, truth="-DLUAJIT_ENABLE_LUA52COMPAT"),
    debian("sid luajit", "sid", ["luajit", "libluajit-5.1-2"], "usr/bin/luajit",
           ["usr/bin/luajit"], SID, depends=True, truth="-DLUAJIT_ENABLE_LUA52COMPAT", ci=True),
    debian("sid luajit, namespaces", "sid", ["luajit", "libluajit-5.1-2"], "usr/bin/luajit",
           ["usr/bin/luajit"], SID, depends=True, truth="-DLUAJIT_ENABLE_LUA52COMPAT", namespaces=True),
    debian("bookworm nginx", "bookworm", ["nginx", "libnginx-mod-http-lua"], LIBRARY, None, LUAJIT2,
           depends=True, nginx=True),
    debian("trixie nginx", "trixie", ["nginx", "libnginx-mod-http-lua"], LIBRARY, None, ("trixie", "luajit"),
           depends=True, truth="-DLUAJIT_ENABLE_LUA52COMPAT", nginx=True),
    debian("sid nginx", "sid", ["nginx", "libnginx-mod-http-lua"], LIBRARY, None, SID,
           depends=True, truth="-DLUAJIT_ENABLE_LUA52COMPAT", nginx=True),
    debian("bullseye luajit", "bullseye", ["luajit", "libluajit-5.1-2"], "usr/bin/luajit",
           ["usr/bin/luajit"], BULLSEYE, depends=True, ci=True),
    debian("bullseye library", "bullseye", ["libluajit-5.1-2"], LIBRARY, None, BULLSEYE),
    debian("bookworm tarantool", "bookworm", ["tarantool"], "usr/bin/tarantool",
           ["usr/bin/tarantool"], ("bookworm", "tarantool", "third_party/luajit"), depends=True,
           truth="-DLUAJIT_SMART_STRINGS=1", workloads="tarantool", startup=1.5),

    built("plain", BOOKWORM),
    built("amalgamated", BOOKWORM, "amalg"),
    built("no JIT", BOOKWORM, "XCFLAGS=-DLUAJIT_DISABLE_JIT", ci=True),
    built("assertions", BOOKWORM, "XCFLAGS='-DLUA_USE_ASSERT -DLUA_USE_APICHECK'"),
    built("gcc -O1", BOOKWORM, "CCOPT=-O1"),
    built("gcc -O3", BOOKWORM, "CCOPT=-O3"),
    built("gcc -Os", BOOKWORM, "CCOPT=-Os"),
    built("clang -O1", BOOKWORM, "CC=clang CCOPT=-O1"),
    built("clang -O2", BOOKWORM, "CC=clang CCOPT=-O2"),
    built("clang -O3", BOOKWORM, "CC=clang CCOPT=-O3"),
    built("clang -Os", BOOKWORM, "CC=clang CCOPT=-Os"),
    built("LTO", BOOKWORM, "CCOPT='-O2 -flto' TARGET_AR='gcc-ar rcus'"),
    built("CET", BOOKWORM, "CCOPT='-O2 -fcf-protection=full -fstack-clash-protection'"),
    built("frame pointers", BOOKWORM, "CCOPT='-O2 -fno-omit-frame-pointer'"),
    built("dualnum", BOOKWORM, "XCFLAGS=-DLUAJIT_NUMMODE=2"),
    built("5.2 compatible", BOOKWORM, "XCFLAGS=-DLUAJIT_ENABLE_LUA52COMPAT"),
    built("no FFI", BOOKWORM, "XCFLAGS=-DLUAJIT_DISABLE_FFI"),
    built("checkhook", BOOKWORM, "XCFLAGS=-DLUAJIT_ENABLE_CHECKHOOK"),
    built("internal unwinding", BOOKWORM, "XCFLAGS=-DLUAJIT_NO_UNWIND"),
    built("static, stripped", BOOKWORM, "LDFLAGS=-static", strip=True, ci=True),
    built("static-pie, stripped", BOOKWORM,
          "LDFLAGS=-static-pie CCOPT='-O2 -fPIE'", strip=True),
    built("fork", BOOKWORM, "", edit=FORK),
    built("fork with states", BOOKWORM, edit=fork_states("src/vm_x64.dasc"), ci=True),
    built("fork with states, no GC64", BOOKWORM, "XCFLAGS=-DLUAJIT_DISABLE_GC64", edit=fork_states("src/vm_x86.dasc")),
    built("openresty 2023", LUAJIT2),
    built("openresty 2025", SID),
    built("openresty 2025, amalgamated", SID, "amalg CCOPT='-O2 -flto' TARGET_AR='gcc-ar rcus'"),
    built("beta3 GC64", BULLSEYE, "XCFLAGS=-DLUAJIT_ENABLE_GC64"),
    built("beta3", BULLSEYE, ""),
    built("no GC64", BOOKWORM, "XCFLAGS=-DLUAJIT_DISABLE_GC64"),
    built("no GC64, clang -O3", BOOKWORM, "CC=clang CCOPT=-O3 XCFLAGS=-DLUAJIT_DISABLE_GC64"),
    built("openresty 2025, no GC64", SID, "XCFLAGS=-DLUAJIT_DISABLE_GC64"),
]

# The same of arm64: a field after cur_L, a C frame that is 16 bytes larger, below what is saved in it.
FORK_ARM64 = (
    FORK[0],
    ("src/vm_arm64.dasc", r"(CFRAME_SPACE,\t)208", r"\g<1>224"),
    ("src/vm_arm64.dasc", r"(SAVE_FP_LR_,\t)192", r"\g<1>208"),
    ("src/vm_arm64.dasc", r"(SAVE_GPR_,\t)112", r"\g<1>128"),
    ("src/vm_arm64.dasc", r"(SAVE_FPR_,\t)48", r"\g<1>64"),
    ("src/lj_frame.h", r"(LJ_TARGET_ARM64\n.*?CFRAME_SIZE\t\t)208", r"\g<1>224"),
)


def arm64(name, tree, make="", **more):
    cross = "aarch64-linux-gnu-"
    clang = "STATIC_CC='clang --target=aarch64-linux-gnu' TARGET_LD='clang --target=aarch64-linux-gnu'"
    make = "CROSS=%s HOST_CC=gcc " % cross + make.replace("CLANG", clang)
    return built("arm64, " + name, tree, make, cross=cross, emulator=["qemu-aarch64-static"], **more)


ROWS_ARM64 = [
    arm64("plain", BOOKWORM),
    arm64("branch protection", BOOKWORM, "TARGET_CFLAGS=-mbranch-protection=standard"),
    arm64("frame pointers", BOOKWORM, "TARGET_CFLAGS='-fno-omit-frame-pointer -mno-omit-leaf-frame-pointer'"),
    arm64("LTO", BOOKWORM, "TARGET_CFLAGS=-flto TARGET_LDFLAGS='-flto -O2' TARGET_AR='aarch64-linux-gnu-gcc-ar rcus'"),
    arm64("gcc -O3", BOOKWORM, "CCOPT=-O3"),
    arm64("gcc -Os", BOOKWORM, "CCOPT=-Os"),
    arm64("clang", BOOKWORM, "CLANG"),
    arm64("clang, branch protection", BOOKWORM, "CLANG TARGET_CFLAGS=-mbranch-protection=standard",
          workloads="mixed,coroutines,collector,ffi"),
    arm64("clang, frame pointers", BOOKWORM, "CLANG TARGET_CFLAGS=-fno-omit-frame-pointer",
          workloads="mixed,coroutines,collector,ffi"),
    arm64("no JIT", BOOKWORM, "XCFLAGS=-DLUAJIT_DISABLE_JIT"),
    arm64("fork", BOOKWORM, edit=FORK_ARM64),
    arm64("static, stripped", BOOKWORM, "LDFLAGS=-static", strip=True),
    arm64("openresty 2023", LUAJIT2),
    arm64("openresty 2025", SID),
    arm64("beta3", BULLSEYE),
    arm64("fork, fibers", BOOKWORM, edit=FORK_ARM64, fiber="", workloads="fiber"),
    arm64("branch protection, fibers", BOOKWORM, "TARGET_CFLAGS=-mbranch-protection=standard",
          fiber="-mbranch-protection=standard", workloads="fiber"),
    arm64("no frame pointers, fibers", BOOKWORM, "TARGET_CFLAGS=-fomit-frame-pointer", fiber="-fomit-frame-pointer",
          workloads="fiber"),
    arm64("tarantool 2.6, fibers", ("bookworm", "tarantool", "third_party/luajit"), "XCFLAGS=-DLUAJIT_SMART_STRINGS=1",
          fiber="-DSTART_HAS_ROWS", workloads="fiber"),
    arm64("tarantool 2.6", ("bookworm", "tarantool", "third_party/luajit"), "XCFLAGS=-DLUAJIT_SMART_STRINGS=1"),
]
