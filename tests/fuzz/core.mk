# SPDX-License-Identifier: MIT
# The core fuzzer: nearly all of the library, with libFuzzer and sanitizers. Built only when its test
# runs, file by file, as it takes a minute.
# usage: make -f core.mk ROOT=SOURCE-TREE CLANG=clang-14 [BULK=1], in the folder to build in
# BULK: for millions of runs from inputs that were found before: twice as fast, worse at finding new ones
FOLDERS = elf luajit symbols target unwind
SOURCES = $(ROOT)/tests/fuzz/core_fuzz.c $(ROOT)/tests/fuzz/core_lies.c \
	$(foreach folder,$(FOLDERS),$(wildcard $(ROOT)/src/$(folder)/*.c))
OBJECTS = $(patsubst %.c,%.o,$(subst /,_,$(patsubst $(ROOT)/%,%,$(SOURCES))))
FLAGS = -D_GNU_SOURCE $(if $(BULK),-g1 -O2 -fno-sanitize-coverage=trace-cmp,-g -O1) -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
	-DMSP_CACHE_SLOTS=16 -I$(ROOT)/src -I$(ROOT)/include

core-fuzz: $(OBJECTS)
	$(CLANG) $(FLAGS) $^ -o $@ -ldw -lelf -lz -lzstd -llzma -llz4 -lcapstone -liberty -lpthread

# What memory lies about is compared with no constant that would lead further: half the time for nothing.
NO_COMPARE = $(if $(filter src/luajit/% src/symbols/% src/unwind/% \
	src/target/walker.c src/target/cache.c src/target/snapshot%,$(patsubst $(ROOT)/%,%,$(1))),-fno-sanitize-coverage=trace-cmp)

define rule
$(patsubst %.c,%.o,$(subst /,_,$(patsubst $(ROOT)/%,%,$(1)))): $(1) $(ROOT)/tests/fuzz/core.mk
	$(CLANG) $(FLAGS) $(NO_COMPARE) -MMD -c $$< -o $$@
endef
$(foreach source,$(SOURCES),$(eval $(call rule,$(source))))

-include $(OBJECTS:.o=.d)
