/* SPDX-License-Identifier: MIT */
/* Interning, counting, order and union of profiles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "moonspy/moonspy.h"
#include "output_synthetic.h"
#include "profile/profile.h"
#include "profile/tree.h"

static uint32_t named(struct msp_profile *p, const char *name)
{
	struct msp_frame f = {
		.kind = MSP_FRAME_LUA, .certain = true, .name = name, .file = "f.lua"};
	int64_t id = msp_profile_frame(p, &f);

	assert_true(id >= 0);
	return (uint32_t)id;
}

static void test_every_member_tells_frames_apart(void **state)
{
	const struct msp_frame base = {.kind = MSP_FRAME_JIT, .certain = true, .name = "f"};
	struct msp_frame frames[11];
	struct msp_profile *p = msp_profile_new();

	for (size_t i = 0; i < 11; i++)
		frames[i] = base;
	frames[1].kind = MSP_FRAME_LUA;
	frames[2].certain = false;
	frames[3].vm = true;
	frames[4].name = NULL;
	frames[5].file = "f";
	frames[6].defined = 1;
	frames[7].line = 1;
	frames[8].object = "f";
	frames[9].address = 1ull << 40;
	frames[10].trace = 1;
	for (uint32_t round = 0; round < 2; round++)
		for (uint32_t i = 0; i < 11; i++)
			assert_int_equal(msp_profile_frame(p, &frames[i]), i);
	assert_int_equal(msp_profile_frame_count(p), 11);
	assert_string_equal(msp_profile_frame_at(p, 5)->file, "f");
	assert_null(msp_profile_frame_at(p, 4)->name);
	assert_null(msp_profile_frame_at(p, 11));
	frames[0].kind = MSP_FRAME_KIND_COUNT;
	assert_int_equal(msp_profile_frame(p, &frames[0]), MSP_E_INVALID);
	msp_profile_free(p);
}

static void test_frames_are_copied(void **state)
{
	struct msp_profile *p = msp_profile_new();
	char name[] = "before";
	uint32_t id = named(p, name);

	memcpy(name, "after!", 6);
	assert_string_equal(msp_profile_frame_at(p, id)->name, "before");
	assert_int_not_equal(named(p, name), id);
	msp_profile_free(p);
}

/* Writes "pid/tid a b c=count; " for each stack. */
struct listing {
	struct msp_profile *p;
	char text[512];
	size_t n;
};

static int list(void *ctx, int32_t pid, int32_t tid, const uint32_t *ids, size_t n, uint64_t count)
{
	struct listing *l = ctx;

	l->n += (size_t)sprintf(l->text + l->n, "%d/%d", pid, tid);
	for (size_t i = 0; i < n; i++)
		l->n += (size_t)sprintf(l->text + l->n, " %s",
					msp_profile_frame_at(l->p, ids[i])->name);
	l->n += (size_t)sprintf(l->text + l->n, "=%llu; ", (unsigned long long)count);
	return 0;
}

static void assert_stacks(struct msp_profile *p, const char *expected)
{
	struct listing l = {.p = p};

	assert_int_equal(msp_profile_each(p, list, &l), 0);
	assert_string_equal(l.text, expected);
}

static void test_counts_and_order(void **state)
{
	struct msp_profile *p = msp_profile_new();
	/* Interned in an order that is not the one of the names. */
	uint32_t c = named(p, "c"), a = named(p, "a"), b = named(p, "b");

	assert_int_equal(msp_profile_add(p, 2, 2, (uint32_t[]){c, b}, 2, 5), 0);
	assert_int_equal(msp_profile_add(p, 1, 9, (uint32_t[]){c}, 1, 1), 0);
	assert_int_equal(msp_profile_add(p, 1, 1, (uint32_t[]){a, b, c}, 3, 2), 0);
	assert_int_equal(msp_profile_add(p, 1, 1, (uint32_t[]){a, a}, 2, 1), 0);
	assert_int_equal(msp_profile_add(p, 1, 1, (uint32_t[]){a, b}, 2, 1), 0);
	assert_int_equal(msp_profile_add(p, 1, 1, (uint32_t[]){a, b, c}, 3, 40), 0);
	assert_int_equal(msp_profile_add(p, 1, 1, NULL, 0, 7), 0);
	assert_stacks(p, "1/1=7; 1/1 a a=1; 1/1 a b=1; 1/1 a b c=42; 1/9 c=1; 2/2 c b=5; ");
	assert_int_equal(msp_profile_add(p, 1, 1, (uint32_t[]){a, 99}, 2, 1), MSP_E_INVALID);
	msp_profile_free(p);
}

static int stop_at_second(void *ctx, int32_t pid, int32_t tid, const uint32_t *ids, size_t n,
			  uint64_t count)
{
	return ++*(int *)ctx == 2 ? -77 : 0;
}

static void test_each_can_be_ended(void **state)
{
	struct msp_profile *p = synthetic_server();
	int calls = 0;

	assert_int_equal(msp_profile_each(p, stop_at_second, &calls), -77);
	assert_int_equal(calls, 2);
	msp_profile_free(p);
	p = msp_profile_new();
	calls = 0;
	assert_int_equal(msp_profile_each(p, stop_at_second, &calls), 0);
	assert_int_equal(calls, 0);
	msp_profile_free(p);
}

static void test_counts_saturate(void **state)
{
	struct msp_profile *p = msp_profile_new();
	uint32_t a = named(p, "a");

	msp_profile_add(p, 1, 1, &a, 1, UINT64_MAX - 1);
	msp_profile_add(p, 1, 1, &a, 1, 5);
	assert_stacks(p, "1/1 a=18446744073709551615; ");
	msp_profile_free(p);
}

static int deepest(void *ctx, int32_t pid, int32_t tid, const uint32_t *ids, size_t n,
		   uint64_t count)
{
	if (n > *(size_t *)ctx)
		*(size_t *)ctx = n;
	return 0;
}

static void test_depth_is_bounded(void **state)
{
	struct msp_profile *p = msp_profile_new();
	uint32_t *ids = calloc(MSP_PROFILE_MAX_STACK + 1, sizeof(*ids)), a = named(p, "a");
	size_t depth = 0;

	for (size_t i = 0; i <= MSP_PROFILE_MAX_STACK; i++)
		ids[i] = a;
	assert_int_equal(msp_profile_add(p, 1, 1, ids, MSP_PROFILE_MAX_STACK, 1), 0);
	assert_int_equal(msp_profile_add(p, 1, 1, ids, MSP_PROFILE_MAX_STACK + 1, 1), MSP_E_LIMIT);
	assert_int_equal(msp_profile_each(p, deepest, &depth), 0);
	assert_int_equal(depth, MSP_PROFILE_MAX_STACK);
	free(ids);
	msp_profile_free(p);
}

static void test_names_and_meta(void **state)
{
	struct msp_profile *p = msp_profile_new();
	const char *key, *value;

	assert_null(msp_profile_name(p, 1, 0));
	assert_int_equal(msp_profile_set_name(p, 1, 0, "process"), 0);
	assert_int_equal(msp_profile_set_name(p, 1, 1, "thread"), 0);
	assert_int_equal(msp_profile_set_name(p, 1, 1, "renamed"), 0);
	assert_string_equal(msp_profile_name(p, 1, 0), "process");
	assert_string_equal(msp_profile_name(p, 1, 1), "renamed");
	assert_null(msp_profile_name(p, 2, 1));
	msp_profile_set_meta(p, "z", "1");
	msp_profile_set_meta(p, "a", "2");
	msp_profile_set_meta(p, "z", "3");
	assert_int_equal(msp_profile_meta_count(p), 2);
	msp_profile_meta_at(p, 1, &key, &value);
	assert_string_equal(key, "z");
	assert_string_equal(value, "3");
	assert_string_equal(msp_profile_meta(p, "a"), "2");
	assert_null(msp_profile_meta(p, "b"));
	assert_int_equal(msp_profile_set_meta(p, NULL, ""), MSP_E_INVALID);
	msp_profile_free(p);
}

static void test_errors_are_sorted_and_bounded(void **state)
{
	struct msp_quality q = {0};
	uint64_t sum = 0;
	char reason[80];

	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 100; i++) {
			snprintf(reason, sizeof(reason), "reason %d", i);
			msp_quality_error(&q, reason, (uint64_t)i);
		}
	memset(reason, 'x', sizeof(reason) - 1);
	reason[sizeof(reason) - 1] = 0;
	msp_quality_error(&q, reason, 1);
	for (size_t i = 0; i < MSP_PROFILE_MAX_REASONS; i++) {
		assert_true(q.errors[i].reason[0]);
		assert_true(i == 0 || q.errors[i].count <= q.errors[i - 1].count);
		sum += q.errors[i].count;
	}
	assert_string_equal(q.errors[0].reason, "other");
	assert_int_equal(sum, 2 * 4950 + 1);
}

static void test_merge(void **state)
{
	struct msp_profile *p = msp_profile_new(), *q = msp_profile_new();
	uint32_t a = named(p, "a"), b = named(q, "b"), qa = named(q, "a");

	msp_profile_add(p, 1, 1, &a, 1, 1);
	msp_profile_add(q, 1, 1, &qa, 1, 2);
	msp_profile_add(q, 2, 2, (uint32_t[]){qa, b}, 2, 3);
	msp_profile_set_name(q, 2, 0, "two");
	msp_profile_set_meta(p, "command", "first");
	msp_profile_set_meta(q, "command", "second");
	msp_profile_quality(p)->samples = 1;
	msp_profile_quality(p)->bpf_ns_per_sample = 1000;
	msp_profile_quality(q)->samples = 3;
	msp_profile_quality(q)->bpf_ns_per_sample = 2000;
	msp_quality_error(msp_profile_quality(q), "why", 1);
	msp_quality_error(msp_profile_quality(q), "never", 0);
	msp_quality_way(msp_profile_quality(q), "a way", 2);
	assert_int_equal(msp_profile_merge(p, q), 0);
	assert_stacks(p, "1/1 a=3; 2/2 a b=3; ");
	assert_string_equal(msp_profile_name(p, 2, 0), "two");
	assert_string_equal(msp_profile_meta(p, "command"), "first");
	assert_int_equal(msp_profile_quality(p)->samples, 4);
	assert_int_equal(msp_profile_quality(p)->bpf_ns_per_sample, 1750);
	assert_string_equal(msp_profile_quality(p)->errors[0].reason, "why");
	assert_string_equal(msp_profile_quality(p)->errors[1].reason, "");
	assert_string_equal(msp_profile_quality(p)->ways[0].reason, "a way");
	assert_int_equal(msp_profile_quality(p)->ways[0].count, 2);
	msp_profile_free(p);
	msp_profile_free(q);
}

static void assert_object(const struct msp_profile *p, const char *object, const char *build_id,
			  const char *path)
{
	const char *have[2], *want[2] = {build_id, path};

	assert_true(msp_profile_object(p, object, &have[0], &have[1]));
	for (size_t i = 0; i < 2; i++) {
		if (want[i] && have[i])
			assert_string_equal(have[i], want[i]);
		else
			assert_ptr_equal(have[i], want[i]);
	}
}

static void test_objects(void **state)
{
	struct msp_profile *p = msp_profile_new(), *q = msp_profile_new();
	const char *object = "", *last = "", *build_id, *path;

	for (uint32_t i = 0; i < 100; i++) {
		char name[20];

		snprintf(name, sizeof(name), "%u", i * 37 % 100);
		assert_int_equal(msp_profile_set_object(p, name, name, "/lib"), 0);
	}
	assert_int_equal(msp_profile_object_count(p), 100);
	for (size_t i = 0; i < 100; i++, last = object) {
		msp_profile_object_at(p, i, &object, &build_id, &path);
		assert_true(strcmp(last, object) < 0);
		assert_string_equal(object, build_id);
	}
	assert_false(msp_profile_object(p, "x", &build_id, &path));
	assert_null(build_id);
	assert_int_equal(msp_profile_set_object(p, NULL, "x", "x"), MSP_E_INVALID);
	/* Two files of one name: what they do not share is not known, and stays so. */
	msp_profile_set_object(q, "1", "1", "/container/lib");
	msp_profile_set_object(q, "2", "other", "/lib");
	msp_profile_set_object(q, "new", NULL, "/new");
	assert_int_equal(msp_profile_merge(p, q), 0);
	msp_profile_set_object(p, "2", "2", "/lib");
	assert_object(p, "1", "1", NULL);
	assert_object(p, "2", NULL, "/lib");
	assert_object(p, "new", NULL, "/new");
	msp_profile_free(p);
	msp_profile_free(q);
}

/* Sorted, each once, whatever order they come in; two profiles add up. */
static void test_events(void **state)
{
	struct msp_profile *p = msp_profile_new(), *q = msp_profile_new();
	const struct msp_vm_events *last = NULL, *e;
	char name[20];
	size_t n = 0;

	for (uint32_t i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "%u", i * 37 % 5);
		assert_int_equal(msp_profile_add_vm_events(i & 1 ? p : q, (int32_t)(i * 37 % 4) - 1,
							   i * 37 % 5, name, i),
				 0);
	}
	assert_int_equal(msp_profile_add_vm_events(p, 1, 1, "", 1), MSP_E_INVALID);
	assert_int_equal(msp_profile_add_vm_events(p, 1, 1, "none", 0), 0);
	assert_int_equal(msp_profile_add_vm_events(p, 7, 1, "many", UINT64_MAX), 0);
	assert_int_equal(msp_profile_add_vm_events(q, 7, 1, "many", 1), 0);
	assert_int_equal(msp_profile_merge(p, q), 0);
	for (uint64_t sum = 0; (e = msp_profile_vm_events(p, n)); n++, last = e) {
		assert_true(!last || last->pid < e->pid || (last->pid == e->pid && last->g < e->g));
		if (!strcmp(e->event, "many"))
			assert_int_equal(e->count, UINT64_MAX);
		else
			sum += e->count;
		if (n == 19)
			assert_int_equal(sum, 199 * 200 / 2);
	}
	assert_int_equal(n, 21); /* 4 processes, 5 VMs of one event each, and the many */
	msp_profile_free(p);
	msp_profile_free(q);
}

/* Two lists that interleave: a merge that moved the rest for each row would take minutes. */
static void test_many_merge(void **state)
{
	enum { ROWS = 400000 };
	struct msp_profile *p = msp_profile_new(), *q = msp_profile_new();
	char name[24];

	for (int i = 0; i < ROWS; i++) {
		snprintf(name, sizeof(name), "%08d", i);
		msp_profile_add_vm_events(i % 2 ? p : q, i, 1, "made", 1);
		msp_profile_set_object(i % 2 ? p : q, name, NULL, name);
		if (i % 4 == 3) {
			msp_profile_add_vm_events(q, i, 1, "made", 2);
			msp_profile_set_object(q, name, NULL, "another");
		}
	}
	assert_int_equal(msp_profile_merge(p, q), 0);
	assert_int_equal(msp_profile_object_count(p), ROWS);
	for (int i = 0; i < ROWS; i++) {
		const struct msp_vm_events *e = msp_profile_vm_events(p, (size_t)i);
		const char *id, *path;

		snprintf(name, sizeof(name), "%08d", i);
		assert_true(msp_profile_object(p, name, &id, &path));
		if ((path == NULL) != (i % 4 == 3) || e->pid != i ||
		    e->count != (i % 4 == 3 ? 3 : 1))
			fail_msg("row %d: %d, %lu times", i, e->pid, (unsigned long)e->count);
	}
	assert_null(msp_profile_vm_events(p, ROWS));
	msp_profile_free(p);
	msp_profile_free(q);
}

/* Memory is bound by the number of different stacks, not of samples. */
static void test_a_stack_seen_again_takes_no_memory(void **state)
{
	enum { STACKS = 10000 };
	struct msp_profile *p = msp_profile_new();
	size_t before;
	uint32_t ids[2];

	ids[0] = named(p, "root");
	before = msp_profile_memory(p);
	for (int i = 0; i < STACKS; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%d", i);
		ids[1] = named(p, name);
		assert_int_equal(msp_profile_add(p, 1, 1, ids, 2, 1), 0);
	}
	assert_int_equal(msp_profile_stack_count(p), STACKS);
	/* A frame, a node, a counter and a name at least. */
	assert_true(msp_profile_memory(p) > before + STACKS * (sizeof(struct msp_frame) + 24));
	before = msp_profile_memory(p);
	for (int i = 0; i < STACKS; i++)
		assert_int_equal(msp_profile_add(p, 1, 1, ids, 2, 1), 0);
	assert_int_equal(msp_profile_memory(p), before);
	assert_int_equal(msp_profile_stack_count(p), STACKS);
	msp_profile_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_member_tells_frames_apart),
		cmocka_unit_test(test_frames_are_copied),
		cmocka_unit_test(test_counts_and_order),
		cmocka_unit_test(test_each_can_be_ended),
		cmocka_unit_test(test_counts_saturate),
		cmocka_unit_test(test_depth_is_bounded),
		cmocka_unit_test(test_names_and_meta),
		cmocka_unit_test(test_errors_are_sorted_and_bounded),
		cmocka_unit_test(test_merge),
		cmocka_unit_test(test_objects),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_many_merge),
		cmocka_unit_test(test_a_stack_seen_again_takes_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
