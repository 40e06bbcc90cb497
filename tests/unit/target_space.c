/* SPDX-License-Identifier: MIT */
/* Address spaces, the walker's live host, and snapshots of real processes. */
#include "target_help.h"

#include <dlfcn.h>
#include <pthread.h>

#include "target/snapshot.h"
#include "target/space.h"
#include "unwind/tables.h"

#define DEPTH 900
#define THREADS 10

static struct msp_images *new_images(void)
{
	struct msp_images_options options = {0};
	struct msp_images *images;

	assert_int_equal(msp_images_new(&options, &images), 0);
	return images;
}

static struct msp_space *new_space(struct msp_images *images, struct msp_process *process)
{
	struct msp_space *space;

	assert_int_equal(msp_space_new(images, process, &space), 0);
	assert_int_equal(msp_space_refresh(space), 1);
	return space;
}

static const char *symbol_at(const struct msp_space *space, uint64_t pc)
{
	const struct msp_mapping *map = msp_space_find(space, pc);
	const struct msp_image_entry *entry;
	struct msp_symbol symbol;

	if (!map || !(map->flags & MSP_MAP_FILE))
		return "";
	entry = msp_images_get(msp_space_images(space), map->image);
	assert_non_null(entry);
	return msp_image_symbol(entry->image, pc - map->base, &symbol) == 0 ? symbol.name : "";
}

static void with_jit(struct shared *shared)
{
	void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = memfd_create("no ELF", MFD_CLOEXEC);
	void *file;

	shared->errors += ftruncate(fd, 4096);
	file = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	shared->value[0] = (long)code;
	shared->value[1] = (long)file;
	shared->errors += code == MAP_FAILED || file == MAP_FAILED;
	shared->ready = 1;
	while (!shared->stop)
		nap();
	shared->errors += !dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
	shared->errors += !dlopen("libanl.so.1", RTLD_NOW | RTLD_LOCAL);
	shared->count = 1;
	for (;;)
		pause();
}

static void test_mappings(void **state)
{
	struct msp_images *images = new_images();
	const struct msp_mapping *maps, *map;
	struct msp_space *space;
	struct child child;
	size_t count, vdsos = 0;
	uint64_t base[MSP_MAX_BASES];

	spawn(&child, with_jit);
	space = new_space(images, child.process);
	maps = msp_space_mappings(space, &count);
	assert_true(count >= 4);
	for (size_t i = 0; i < count; i++) {
		assert_true(maps[i].start < maps[i].end);
		assert_true(!i || maps[i - 1].end <= maps[i].start);
		vdsos += !!(maps[i].flags & MSP_MAP_VDSO);
		assert_int_equal(!!(maps[i].flags & MSP_MAP_FILE), maps[i].image != 0);
		assert_ptr_equal(msp_space_find(space, maps[i].start), &maps[i]);
		assert_ptr_equal(msp_space_find(space, maps[i].end - 1), &maps[i]);
	}
	assert_int_equal(vdsos, 1);
	assert_string_equal(symbol_at(space, (uintptr_t)msp_strerror), "msp_strerror");
	assert_string_equal(symbol_at(space, (uintptr_t)test_mappings), "test_mappings");
	map = msp_space_find(space, (uintptr_t)test_mappings);
	assert_int_equal(msp_space_image_bases(space, map->image, base), 1);
	assert_int_equal(base[0], map->base);
	assert_int_equal(msp_space_image_bases(space, 4711, base), 0);
	assert_non_null(strstr(msp_space_mapping_name(space, map), "test-target_space"));
	map = msp_space_find(space, child.shared->value[0]);
	assert_non_null(map);
	assert_int_equal(map->image, 0);
	assert_int_equal(map->flags, 0);
	map = msp_space_find(space, child.shared->value[1]);
	assert_non_null(map);
	assert_int_equal(map->image, 0);
	assert_int_equal(map->flags, MSP_MAP_UNREAD);
	assert_null(msp_space_find(space, 0));
	assert_null(msp_space_find(space, UINT64_MAX));
	msp_space_free(space);
	msp_images_free(images);
	finish(&child);
}

static void test_follows_changes(void **state)
{
	struct msp_images *images = new_images();
	struct msp_space *space;
	struct child child;
	uint32_t before;

	spawn(&child, with_jit);
	space = new_space(images, child.process);
	before = msp_images_count(images);
	assert_int_equal(msp_space_refresh(space), 0);
	assert_int_equal(msp_images_count(images), before);
	child.shared->stop = 1;
	wait_for(child.shared->count == 1);
	assert_int_equal(child.shared->errors, 0);
	assert_int_equal(msp_space_refresh(space), 1);
	assert_true(msp_images_count(images) > before);
	assert_int_equal(msp_space_refresh(space), 0);
	assert_null(msp_images_get(images, 0));
	assert_null(msp_images_get(images, msp_images_count(images) + 1));
	for (uint32_t i = 1; i <= msp_images_count(images); i++)
		assert_int_equal(msp_images_get(images, i)->index, i);
	kill(child.pid, SIGKILL);
	wait_for(!msp_process_alive(child.process));
	assert_int_equal(msp_space_refresh(space), MSP_E_GONE);
	msp_space_free(space);
	msp_images_free(images);
	finish(&child);
}

/* Two processes with the same files have the same images. */
static void test_shared_images(void **state)
{
	struct msp_images *images = new_images();
	struct msp_space *first, *second;
	struct child a, b;
	uint32_t count;
	const struct msp_mapping *x, *y;

	spawn(&a, sleep_forever);
	spawn(&b, sleep_forever);
	first = new_space(images, a.process);
	count = msp_images_count(images);
	second = new_space(images, b.process);
	assert_int_equal(msp_images_count(images), count);
	x = msp_space_find(first, (uintptr_t)new_space);
	y = msp_space_find(second, (uintptr_t)new_space);
	assert_int_equal(x->image, y->image);
	msp_space_free(first);
	msp_space_free(second);
	msp_images_free(images);
	finish(&a);
	finish(&b);
}

/* ---- Stacks ---- */

static struct shared *volatile chain_shared;

static __attribute__((noinline)) void chain_leaf(void)
{
	chain_shared->ready = 1;
	while (!chain_shared->stop)
		chain_shared->count++;
}

static __attribute__((noinline)) void chain_middle(int depth)
{
	if (depth)
		chain_middle(depth - 1);
	else
		chain_leaf();
	chain_shared->errors++;
}

static __attribute__((noinline)) void chain_handler(int sig)
{
	chain_middle(3);
	chain_shared->errors++;
}

static void chain(struct shared *shared)
{
	chain_shared = shared;
	chain_middle(5);
	shared->errors++;
}

static void chain_in_signal(struct shared *shared)
{
	chain_shared = shared;
	signal(SIGUSR1, chain_handler);
	raise(SIGUSR1);
	shared->errors++;
}

static int count_symbol(const struct msp_space *space, const struct msp_thread_stack *thread,
			const char *name)
{
	int hits = 0;

	for (size_t i = 0; i < thread->count; i++) {
		const struct msp_raw_frame *f = &thread->frames[i];

		if (f->kind == MSP_RAW_NATIVE)
			hits += !strcmp(symbol_at(space, f->addr - !!(f->flags & MSP_RAWF_RETURN)),
					name);
	}
	return hits;
}

static void check_chain(void (*run)(struct shared *), int middles, const char *outer)
{
	struct msp_images *images = new_images();
	struct msp_snapshot snapshot;
	struct msp_space *space;
	struct child child;

	spawn(&child, run);
	space = new_space(images, child.process);
	assert_int_equal(msp_snapshot_take(space, NULL, &snapshot), 0);
	assert_int_equal(snapshot.count, 1);
	assert_int_equal(snapshot.thread[0].tid, child.pid);
	assert_int_equal(snapshot.thread[0].result, 0);
	assert_int_equal(snapshot.thread[0].error, MSP_ERR_NONE);
	assert_false(snapshot.thread[0].has_vm);
	assert_string_equal(symbol_at(space, snapshot.thread[0].frames[0].addr), "chain_leaf");
	assert_int_equal(count_symbol(space, &snapshot.thread[0], "chain_middle"), middles);
	assert_int_equal(count_symbol(space, &snapshot.thread[0], outer), 1);
	assert_int_equal(count_symbol(space, &snapshot.thread[0], "main"), 1);
	print_message("stopped for %llu us\n", (unsigned long long)snapshot.stopped_ns / 1000);
	msp_snapshot_free(&snapshot);
	msp_space_free(space);
	msp_images_free(images);
	finish(&child);
}

static void test_chain(void **state)
{
	check_chain(chain, 6, "chain");
}

static void test_signal_frame(void **state)
{
	check_chain(chain_in_signal, 4, "chain_handler");
}

static __attribute__((noinline)) void dive(struct shared *shared, int depth)
{
	if (depth) {
		dive(shared, depth - 1);
		shared->errors++; /* not a tail call */
		return;
	}
	__atomic_add_fetch(&shared->count, 1, __ATOMIC_SEQ_CST);
	while (!shared->stop)
		pause();
}

static void *diver(void *arg)
{
	dive(arg, DEPTH);
	return NULL;
}

static void divers(struct shared *shared)
{
	pthread_t thread;

	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread, NULL, diver, shared);
	while (shared->count < THREADS)
		nap();
	sleep_forever(shared);
}

/* The budget of a dump: ten threads of a thousand frames, 2 ms. */
static void test_deep_threads(void **state)
{
	struct msp_images *images = new_images();
	struct msp_snapshot snapshot;
	struct msp_space *space;
	struct child child;
	uint64_t best = UINT64_MAX;

	spawn(&child, divers);
	space = new_space(images, child.process);
	for (int round = 0; round < 5; round++) {
		assert_int_equal(msp_snapshot_take(space, NULL, &snapshot), 0);
		assert_int_equal(snapshot.count, THREADS + 1);
		for (size_t i = 0; i < snapshot.count; i++) {
			/* Not the first thread, whose number need not be the least. */
			if (snapshot.thread[i].tid == child.pid)
				continue;
			assert_int_equal(snapshot.thread[i].error, MSP_ERR_NONE);
			assert_int_equal(count_symbol(space, &snapshot.thread[i], "dive"),
					 DEPTH + 1);
		}
		best = snapshot.stopped_ns < best ? snapshot.stopped_ns : best;
		msp_snapshot_free(&snapshot);
	}
	print_message("%d threads of %d frames: stopped for %llu us\n", THREADS, DEPTH,
		      (unsigned long long)best / 1000);
	msp_space_free(space);
	msp_images_free(images);
	finish(&child);
}

/* Code that came after the refresh is known when the stack is walked. */
static void test_late_library(void **state)
{
	struct msp_images *images = new_images();
	struct msp_snapshot snapshot;
	struct msp_space *space;
	struct child child;

	spawn(&child, with_jit);
	assert_int_equal(msp_space_new(images, child.process, &space), 0);
	assert_int_equal(msp_snapshot_take(space, NULL, &snapshot), 0);
	assert_int_equal(snapshot.thread[0].error, MSP_ERR_NONE);
	assert_int_equal(count_symbol(space, &snapshot.thread[0], "with_jit"), 1);
	msp_snapshot_free(&snapshot);
	msp_space_free(space);
	msp_images_free(images);
	finish(&child);
}

/* ---- LuaJIT ---- */

static void test_luajit(void **state)
{
	struct msp_images *images = new_images();
	const struct msp_image_entry *entry;
	struct msp_process *process;
	struct msp_snapshot snapshot;
	struct msp_space *space;
	const struct msp_vm *vms;
	size_t count, lua = 0;
	int pipes[2];
	pid_t pid;
	char byte;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(pipes[1], 1);
		execlp("luajit", "luajit", "-e",
		       "local function f(n) if n > 0 then return 1 + f(n - 1) end "
		       "io.write('x') io.flush() while true do end end f(10)",
		       NULL);
		_exit(1);
	}
	close(pipes[1]);
	if (read(pipes[0], &byte, 1) != 1) {
		waitpid(pid, NULL, 0);
		skip();
	}
	assert_int_equal(msp_process_open(pid, &process), 0);
	space = new_space(images, process);
	assert_int_equal(msp_space_find_vms(space), 1);
	vms = msp_space_vms(space, &count);
	assert_int_equal(count, 1);
	assert_true(vms[0].proof.proved);
	assert_int_equal(vms[0].layout, 1);
	entry = msp_images_get(images, vms[0].image);
	assert_non_null(entry->build);
	assert_ptr_equal(msp_images_by_layout(images, 1), entry);
	assert_null(msp_images_by_layout(images, MSP_LAYOUT_NONE));
	assert_ptr_equal(msp_space_vm_at(space, 1, vms[0].g), &vms[0]);
	assert_null(msp_space_vm_at(space, 1, vms[0].g + 8));
	/* What was asked for in vain is remembered, but not as a VM. */
	count = msp_space_find_vms(space);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(vms[i].gone, i > 0);
	assert_int_equal(msp_snapshot_take(space, NULL, &snapshot), 0);
	assert_int_equal(snapshot.thread[0].error, MSP_ERR_NONE);
	assert_true(snapshot.thread[0].has_vm);
	for (size_t i = 0; i < snapshot.thread[0].count; i++)
		lua += snapshot.thread[0].frames[i].kind == MSP_RAW_LUA;
	assert_int_equal(lua, 12); /* f eleven times, and the main chunk */
	msp_snapshot_free(&snapshot);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	msp_space_free(space);
	msp_process_close(process);
	msp_images_free(images);
	close(pipes[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mappings),      cmocka_unit_test(test_follows_changes),
		cmocka_unit_test(test_shared_images), cmocka_unit_test(test_chain),
		cmocka_unit_test(test_signal_frame),  cmocka_unit_test(test_deep_threads),
		cmocka_unit_test(test_late_library),  cmocka_unit_test(test_luajit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
