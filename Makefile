# SPDX-License-Identifier: MIT
# A thin layer over meson and ninja.
#
#	make, make demo, make test, make bench, make install, make clean, make check-format
#	make oracle         steps LuaJIT through all workloads, without end
#	make inprocess      a million stacks unwound in signal handlers, over all workloads; SAMPLES=N
#	make rounds         a target opened, unwound and closed a million times; ROUNDS=N
#	make abi            records the binary interface of the library, after a wanted change
#	make soak           memory and open files over an hour; MINUTES=10: over less
#	make test-kit       the VM descriptor in Debian's LuaJITs, or in TREES="DIR..."; a million signals; COUNT=N;
#	                    read from another process at 5000 moments; MOMENTS=N
#	make test-kit-builds  the VM descriptor built in 25 ways: compilers, options, without each part; BUILDS="NAME...";
#	                    ARCH=arm64: 21 of them for arm64, emulated
#	make test-traces    frames inside of compiled code, against LuaJITs built for it; ARCH=arm64: of arm64, emulated
#	make soak-inprocess  programs that profile themselves, all at once for ten minutes; MINUTES=1: less; SUITE=bullseye:
#	                    by that Debian suite's LuaJIT; APART=1: one after the other, ten minutes of CPU time each
#	make inprocess-asan  those programs, and what they must survive, with address and undefined behaviour sanitizers
#	make hosts          the same moments live and as core files, all workloads, for a few minutes
#	make test-kernels   the same program on Linux 5.10, 6.1 and 6.12, emulated
#	make test-arm64     built for arm64, stepped in user mode, builds of LuaJIT for it, the VM descriptor, Debian's arm64
#	                    kernels, emulated
#	make test-companion  its helpers in signal handlers, over all workloads, held against the walker; SECONDS=10 each
#	make test-builds    held against all builds of LuaJIT, fetched and built; BUILDS="NAME..." for some
#	ASAN=1      with address and undefined behaviour sanitizers, in build-asan
#	WERROR=1    warnings are errors, in build-werror; for CI
#	ARM64=1     for arm64, in build-arm64, with a cross compiler; tests run in user mode emulation
#	DYNAMIC=1   with shared libraries, in build-dynamic; else one static binary
#	prefix=DIR, DESTDIR=DIR   where make install puts things

prefix ?= /usr/local
CLANG_FORMAT ?= clang-format-14
SETUP = -Dprefix=$(prefix) -Dtests=false

ifdef ASAN
BUILD = build-asan
SETUP += -Db_sanitize=address,undefined -Db_lundef=false
else ifdef ARM64
BUILD = build-arm64
SETUP += -Dstatic=true --cross-file $(BUILD)/sysroot.ini --cross-file scripts/arm64.ini
CROSS = $(BUILD)/sysroot.ini
else ifdef DYNAMIC
BUILD = build-dynamic
else ifdef WERROR
BUILD = build-werror
SETUP += -Dstatic=true -Dwerror=true
else
BUILD = build
SETUP += -Dstatic=true
endif

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

# The tests need more packages than the program: they are part of the build once asked for.
tests: $(BUILD)/.tests
	@ninja -C $(BUILD) $(TARGETS)

$(BUILD)/.tests: $(BUILD)/build.ninja
	@meson setup --reconfigure $(BUILD) -Dtests=true >$(BUILD).log || { cat $(BUILD).log; exit 1; }
	@rm -f $(BUILD).log
	@touch $@

$(BUILD)/build.ninja: | $(CROSS)
	@meson setup $(BUILD) $(SETUP) >$(BUILD).log || { cat $(BUILD).log; exit 1; }
	@rm -f $(BUILD).log

build-arm64/sysroot.ini:
	@mkdir -p $(@D)
	@root=$$(scripts/sysroot bookworm/arm64) && printf "[constants]\nsysroot = '%s'\n" "$$root" >$@

demo: all
	@BUILD=$(BUILD) scripts/demo

test: tests
	@meson test -C $(BUILD) --no-rebuild --print-errorlogs $(TESTS); rc=$$?; \
		scripts/test-summary $(BUILD)/meson-logs/testlog.json; exit $$rc

soak: tests
	@MOONSPY=$(CURDIR)/$(BUILD)/src/cli/moonspy tests/soak/run.sh $(MINUTES)

SAMPLES ?= 1000000
inprocess: tests
	@tests/library/inprocess.py $(CURDIR)/$(BUILD)/tests/library/inprocess.so $(CURDIR)/$(BUILD)/src/library \
		$(CURDIR)/$(BUILD)/tests/workloads --samples $(SAMPLES)

# Of the own process each takes longer: a hundredth of them.
ROUNDS ?= 1000000
rounds: tests
	@export LD_LIBRARY_PATH=$(BUILD)/src/library GLIBC_TUNABLES=glibc.malloc.tcache_count=0; \
		ROUNDS=$$(($(ROUNDS) / 100)) $(BUILD)/tests/library/test-library-own && \
		ROUNDS=$(ROUNDS) $(BUILD)/tests/library/test-library-robust

abi: tests
	@tests/library/abi.sh $(BUILD)/src/library/libmoonspy.so record

soak-inprocess: tests
	@luajit=$(or $(LUAJIT),luajit); $(if $(SUITE),luajit=$$(tests/inprocess/suite.sh $(SUITE) 2>/dev/null) || exit;) \
		tests/inprocess/workloads.py $(CURDIR)/$(BUILD)/src/cli/moonspy $(CURDIR)/$(BUILD)/src/inprocess --luajit "$$luajit" \
		$(if $(APART),,--together) --seconds $$(($(or $(MINUTES),10) * 60)) $(WORKLOADS)

inprocess-asan:
	@$(MAKE) -s ASAN=1 tests TARGETS="src/inprocess/sysprof.so tests/inprocess/embed-sysprof src/cli/moonspy"
	@tests/inprocess/asan.sh $(CURDIR)/build-asan

hosts: tests
	@python3 tests/e2e/core_hosts.py --rounds 5 $(CURDIR)/$(BUILD)/src/cli/moonspy luajit \
		$(filter-out %/drive.lua %/plugin.lua %/sysbench.lua %/wrk.lua %/names% %/late.lua, \
		$(wildcard $(CURDIR)/tests/workloads/*.lua))

oracle: tests
	@PROGRAMS=$(CURDIR)/$(BUILD)/tests/workloads tests/conformance/oracle.sh $(BUILD)/tests/conformance/oracle 0

test-kernels: all
	@MOONSPY=$(CURDIR)/$(BUILD)/src/cli/moonspy tests/kernels/run.sh $(SUITES)

test-arm64: tests
	@$(MAKE) -s ARM64=1 tests
	@rc=0; CROSS=aarch64-linux-gnu- COUNT=20000 tests/kit/run.sh || rc=1; \
		tests/conformance/qemu_steps.sh $(BUILD)/tests/conformance/qemu-steps 2100 all $(SUITES) || rc=1; \
		python3 tests/builds/matrix.py --arm64 --build $(BUILD) $(BUILDS) || rc=1; \
		SAMPLES=400 ARCH=arm64 $(MAKE) -s test-traces || rc=1; \
		ARCH=arm64 tests/kernels/run.sh $(SUITES) || rc=1; tests/kernels/oracle.sh $(SUITES) || rc=1; \
		tests/kernels/probes.sh $(SUITES) || rc=1; exit $$rc

test-traces: tests
	@for suite in $(or $(SUITES),bookworm bullseye); do echo "$$suite:"; SUITE=$$suite \
		TEST_TRACES=$(CURDIR)/$(BUILD)/tests/traces/test-traces tests/traces/run.sh $(PROGRAMS) || exit; done

COUNT ?= 1000000
test-kit: tests
	@for suite in $(or $(SUITES),bookworm bullseye); do SUITE=$$suite COUNT=$(COUNT) MOMENTS=$(or $(MOMENTS),5000) TOOLS="gdb kit-usdt bpftrace perf" \
		PROGRAMS="$(PROGRAMS)" SAMPLES=$(or $(SAMPLES),850) \
		KIT=$(CURDIR)/$(BUILD)/tests/kit MOONSPY=$(CURDIR)/$(BUILD)/src/cli/moonspy \
		tests/kit/run.sh $(TREES) || exit; [ -z "$(TREES)" ] || break; done

test-kit-builds: tests
	@scripts/debs --source --orig --unpack .cache/kit/src-bookworm bookworm luajit >/dev/null && \
		$(if $(filter arm64,$(ARCH)),CROSS=aarch64-linux-gnu- COUNT=20000) KIT=$(CURDIR)/$(BUILD)/tests/kit tests/kit/builds.sh $(or $(TREES),.cache/kit/src-bookworm/luajit) $(BUILDS)

test-companion: tests
	@SECONDS_EACH=$(or $(SECONDS),10) python3 tests/companion/companion.py $(BUILD) helpers

test-builds: tests
	@python3 tests/builds/matrix.py --build $(BUILD) $(BUILDS)

bench: all
	@python3 bench/bench.py --build $(BUILD) $(BENCH)

install: all
	@meson configure $(BUILD) -Dprefix=$(prefix)
	@ninja -C $(BUILD) >/dev/null
	@meson install -C $(BUILD) --no-rebuild --quiet

clean:
	rm -rf build build-arm64 build-asan build-dynamic build-werror

# Headers are left out: their tables and drawings are laid out by hand.
check-format:
	@find src tests bench examples -name '*.c' -exec $(CLANG_FORMAT) --dry-run --Werror {} +

.PHONY: all tests demo test oracle inprocess rounds abi hosts soak soak-inprocess inprocess-asan test-kernels test-arm64 test-traces test-kit test-kit-builds test-companion test-builds bench install clean check-format
