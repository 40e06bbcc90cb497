/* SPDX-License-Identifier: MIT */
/* The msp format: nothing is lost, newer files are readable, damage is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "moonspy/moonspy.h"
#include "output/msp_format.h"
#include "output/output.h"
#include "output_synthetic.h"
#include "profile/tree.h"

struct bytes {
	char *data;
	size_t size;
};

static struct bytes write_msp(const struct msp_profile *p)
{
	struct bytes b = {0};
	FILE *out = open_memstream(&b.data, &b.size);

	assert_int_equal(msp_format_by_name("msp")->write(p, out), 0);
	fclose(out);
	return b;
}

static int read_msp(const void *data, size_t size, struct msp_profile **out, char error[200])
{
	FILE *in = size ? fmemopen((void *)data, size, "r") : fopen("/dev/null", "r");
	int err = msp_read_msp(in, out, error, 200);

	fclose(in);
	return err;
}

static void assert_refused(const void *data, size_t size, const char *reason)
{
	struct msp_profile *p;
	char error[200];

	assert_int_equal(read_msp(data, size, &p, error), MSP_E_FORMAT);
	assert_null(p);
	assert_non_null(strstr(error, reason));
}

struct pair {
	struct msp_profile *a, *b;
	struct {
		int32_t pid, tid;
		uint64_t count;
		size_t n;
		uint32_t ids[16];
	} stacks[1000];
	size_t n, at;
};

static int keep(void *ctx, int32_t pid, int32_t tid, const uint32_t *ids, size_t n, uint64_t count)
{
	struct pair *pair = ctx;

	assert_true(pair->n < 1000 && n <= 16);
	pair->stacks[pair->n].pid = pid;
	pair->stacks[pair->n].tid = tid;
	pair->stacks[pair->n].count = count;
	pair->stacks[pair->n].n = n;
	memcpy(pair->stacks[pair->n++].ids, ids, n * sizeof(*ids));
	return 0;
}

static void assert_string(const char *a, const char *b)
{
	if (a && b)
		assert_string_equal(a, b);
	else
		assert_ptr_equal(a, b);
}

static void assert_frame(const struct msp_frame *a, const struct msp_frame *b)
{
	assert_int_equal(a->kind, b->kind);
	assert_int_equal(a->certain, b->certain);
	assert_int_equal(a->vm, b->vm);
	assert_string(a->name, b->name);
	assert_string(a->file, b->file);
	assert_string(a->object, b->object);
	assert_int_equal(a->defined, b->defined);
	assert_int_equal(a->line, b->line);
	assert_int_equal(a->address, b->address);
	assert_int_equal(a->trace, b->trace);
}

static int compare(void *ctx, int32_t pid, int32_t tid, const uint32_t *ids, size_t n,
		   uint64_t count)
{
	struct pair *pair = ctx;
	size_t at = pair->at++;

	assert_true(at < pair->n);
	assert_int_equal(pair->stacks[at].pid, pid);
	assert_int_equal(pair->stacks[at].tid, tid);
	assert_int_equal(pair->stacks[at].count, count);
	assert_int_equal(pair->stacks[at].n, n);
	for (size_t i = 0; i < n; i++)
		assert_frame(msp_profile_frame_at(pair->a, pair->stacks[at].ids[i]),
			     msp_profile_frame_at(pair->b, ids[i]));
	return 0;
}

static void assert_objects(const struct msp_profile *a, const struct msp_profile *b)
{
	size_t n = msp_profile_object_count(a);

	assert_true(n > 10);
	assert_int_equal(n, msp_profile_object_count(b));
	for (size_t i = 0; i < n; i++) {
		const char *object[2], *build_id[2], *path[2];

		msp_profile_object_at(a, i, &object[0], &build_id[0], &path[0]);
		msp_profile_object_at(b, i, &object[1], &build_id[1], &path[1]);
		assert_string(object[0], object[1]);
		assert_string(build_id[0], build_id[1]);
		assert_string(path[0], path[1]);
	}
}

static void assert_events(const struct msp_profile *a, const struct msp_profile *b)
{
	const struct msp_vm_events *x, *y;

	for (size_t i = 0; (x = msp_profile_vm_events(a, i)); i++) {
		y = msp_profile_vm_events(b, i);
		assert_non_null(y);
		assert_int_equal(x->pid, y->pid);
		assert_int_equal(x->g, y->g);
		assert_string_equal(x->event, y->event);
		assert_int_equal(x->count, y->count);
	}
	assert_null(msp_profile_vm_events(b, 3));
}

/* Member for member, not only byte for byte. */
static void test_nothing_is_lost(void **state)
{
	struct pair *pair = calloc(1, sizeof(*pair));
	struct msp_quality *q;
	struct bytes b;
	char error[200];

	pair->a = synthetic_hostile();
	q = msp_profile_quality(pair->a);
	*q = (struct msp_quality){~0ull,
				  2,
				  3,
				  4,
				  5,
				  .seconds = 0.1,
				  .rate = ~0u,
				  .bpf_ns_per_sample = 6,
				  .bpf_ns_median = 7,
				  .bpf_ns_p99 = 8};
	msp_quality_error(q, "a reason", 7);
	msp_quality_way(q, "a way", 8);
	msp_profile_add_vm_events(pair->a, 4711, ~0ull, "semi;colon", ~0ull);
	msp_profile_add_vm_events(pair->a, 4711, ~0ull, "an event", 9);
	msp_profile_add_vm_events(pair->a, -1, 0, "an event", 10);
	msp_profile_add(pair->a, -1, INT32_MIN, NULL, 0, ~0ull);
	b = write_msp(pair->a);
	assert_int_equal(read_msp(b.data, b.size, &pair->b, error), 0);
	assert_int_equal(msp_profile_each(pair->a, keep, pair), 0);
	assert_int_equal(msp_profile_each(pair->b, compare, pair), 0);
	assert_int_equal(pair->at, pair->n);
	assert_memory_equal(q, msp_profile_quality(pair->b), sizeof(*q));
	assert_string_equal(msp_profile_meta(pair->b, "semi;colon"), "semi;colon");
	assert_objects(pair->a, pair->b);
	assert_events(pair->a, pair->b);
	assert_string(msp_profile_name(pair->a, 1, 0), msp_profile_name(pair->b, 1, 0));
	assert_non_null(msp_profile_name(pair->b, 1, 0));
	free(b.data);
	msp_profile_free(pair->a);
	msp_profile_free(pair->b);
	free(pair);
}

static void test_every_cut_is_said(void **state)
{
	struct msp_profile *p = synthetic_server(), *back;
	struct bytes b = write_msp(p);
	char error[200];

	for (size_t size = 0; size < b.size; size++) {
		/* The last section's padding carries nothing, but belongs to it. */
		assert_int_equal(read_msp(b.data, size, &back, error), MSP_E_FORMAT);
		assert_true(strlen(error) > 10);
	}
	free(b.data);
	msp_profile_free(p);
}

static void test_every_flipped_byte_is_said(void **state)
{
	struct msp_profile *p = synthetic_server(), *back;
	struct bytes b = write_msp(p);
	size_t unseen = 0;
	char error[200];

	for (size_t i = 0; i < b.size; i++) {
		b.data[i] ^= 0x20;
		if (!read_msp(b.data, b.size, &back, error)) {
			unseen++;
			msp_profile_free(back);
		}
		b.data[i] ^= 0x20;
	}
	/* Minor version, the zero after it, paddings. */
	assert_true(unseen <= 2 + 4 + 7 * MSP_SECTION_COUNT);
	free(b.data);
	msp_profile_free(p);
}

/* A file put together by hand. */
struct file {
	char data[16384];
	size_t size;
};

static struct file begin(void)
{
	struct file f = {.size = 16};
	struct msp_file_header header = {.magic = MSP_FILE_MAGIC, .major = 1, .minor = 7};

	memcpy(f.data, &header, sizeof(header));
	return f;
}

static void section(struct file *f, const char *tag, uint32_t flags, const char *body, size_t size)
{
	struct msp_section_header header = {.flags = flags, .length = size};

	memcpy(header.tag, tag, 4);
	header.body_crc = (uint32_t)crc32(0, (const Bytef *)body, (uInt)size);
	header.header_crc = (uint32_t)crc32(0, (const Bytef *)&header, 20);
	memcpy(f->data + f->size, &header, sizeof(header));
	memcpy(f->data + f->size + sizeof(header), body, size);
	f->size += sizeof(header) + ((size + 7) & ~(size_t)7);
}

#define SECTION(f, tag, body) section(&(f), tag, 0, body, sizeof(body) - 1)

/* Sections that came later are skipped, columns that came later, too; missing ones are 0. */
static void test_newer_file(void **state)
{
	struct file f = begin();
	struct msp_profile *p;
	char error[200];

	SECTION(f, "STRS", "\1\3abc");
	SECTION(f, "NEW!", "anything");
	SECTION(f, "FRAM", "\1\3\0\1\1");
	SECTION(f, "NODE", "\1\4\1\0\11\11");
	SECTION(f, "THRD", "\1\1\5");
	SECTION(f, "CNTS", "\1\3\0\1\5");
	SECTION(f, "QUAL", "\1\1\5");
	SECTION(f, "END ", "\7");
	assert_int_equal(read_msp(f.data, f.size, &p, error), 0);
	assert_string_equal(msp_profile_frame_at(p, 0)->name, "abc");
	assert_true(msp_profile_frame_at(p, 0)->certain);
	assert_null(msp_profile_frame_at(p, 0)->file);
	assert_int_equal(msp_profile_quality(p)->samples, 5);
	msp_profile_free(p);

	f = begin();
	section(&f, "NEW!", MSP_SECTION_CRITICAL, "", 0);
	SECTION(f, "END ", "\1");
	assert_refused(f.data, f.size, "cannot read");
	f = begin();
	f.data[8] = 2;
	assert_refused(f.data, f.size, "version 2.7");
}

static void assert_bad(const char *tag, const char *body, size_t size, const char *reason)
{
	struct file f = begin();

	SECTION(f, "STRS", "\1\3abc");
	if (strcmp(tag, "FRAM"))
		SECTION(f, "FRAM", "\1\3\0\1\1");
	if (!strcmp(tag, "CNTS")) {
		SECTION(f, "NODE", "\1\2\1\0");
		SECTION(f, "THRD", "\1\1\5");
	}
	section(&f, tag, 0, body, size);
	assert_refused(f.data, f.size, reason);
}

#define BAD(tag, body, reason) assert_bad(tag, body, sizeof(body) - 1, reason)

static void test_lies(void **state)
{
	BAD("FRAM", "\1\3\11\1\1", "unknown kind");
	BAD("FRAM", "\1\3\0\1\2", "no such string");
	BAD("FRAM", "\1\3\0\1", "more rows than bytes");
	BAD("FRAM", "\377\377\377\377\377\377\377\377\377\1\1\0", "more rows than bytes");
	BAD("FRAM", "\1\0", "more rows than bytes");
	BAD("FRAM", "\1\1\377\377\377\377\377\377\377\377\377\2", "64 bits");
	BAD("FRAM", "\1\5\0\1\1\1\377\377\377\377\37", "32 bits");
	BAD("NODE", "\1\2\2\0", "no such parent");
	BAD("NODE", "\1\2\0\0", "no such parent");
	BAD("NODE", "\1\2\1\1", "no such frame");
	BAD("NODE", "\1\2\1\200", "past the end");
	BAD("CNTS", "\1\3\1\0\1", "no such thread");
	BAD("CNTS", "\1\3\0\2\1", "no such stack");
	BAD("QUAL", "\2\1\5\5", "not one row");
	BAD("QUAL", "\1\6\0\0\0\0\0\200\200\200\200\200\200\200\370\177", "out of range");
	BAD("ERRS", "\1\2\0\1", "no reason");
	BAD("META", "\1\2\1\0", "no key or value");
	BAD("OBJS", "\1\3\0\0\0", "no object");
	BAD("OBJS", "\2\3\1\0\0\1\0\0", "out of order");
	BAD("EVTS", "\1\4\5\1\0\1", "no event");
	BAD("EVTS", "\2\4\5\1\1\1\5\1\1\1", "out of order");
	BAD("EVTS", "\2\4\5\2\1\1\5\1\1\1", "out of order");
	BAD("EVTS", "\1\4\377\377\377\377\37\1\1\1", "out of order");
	BAD("STRS", "\0", "out of order");
	BAD("END ", "\3", "sections are missing");
}

static void test_bad_strings(void **state)
{
	struct file f = begin();

	SECTION(f, "STRS", "\1\3a\0c");
	assert_refused(f.data, f.size, "holds a NUL");
	f = begin();
	SECTION(f, "STRS", "\1\4abc");
	assert_refused(f.data, f.size, "past the end");
	f = begin();
	SECTION(f, "STRS", "\5abc");
	assert_refused(f.data, f.size, "more strings than bytes");
	assert_refused("#!/bin/sh\necho not a profile\n", 29, "not an msp file");
	assert_refused("", 0, "ends within the file's header");
}

/* A chain as deep as a file wants it, and a length that would take an exabyte. */
static void test_bombs(void **state)
{
	static char body[16384] = "\210\47\2"; /* 5,000 rows of 2 */
	struct msp_section_header header = {.tag = "STRS", .length = 1ull << 60};
	struct file f = begin(), big = begin();

	for (size_t i = 0; i < 5000; i++)
		body[3 + 2 * i] = 1;
	SECTION(big, "STRS", "\1\3abc");
	SECTION(big, "FRAM", "\1\3\0\1\1");
	section(&big, "NODE", 0, body, 3 + 2 * 5000);
	assert_refused(big.data, big.size, "too deep");
	header.header_crc = (uint32_t)crc32(0, (const Bytef *)&header, 20);
	memcpy(f.data + f.size, &header, sizeof(header));
	assert_refused(f.data, f.size + sizeof(header) + 100, "ends within a section");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_lost),
		cmocka_unit_test(test_every_cut_is_said),
		cmocka_unit_test(test_every_flipped_byte_is_said),
		cmocka_unit_test(test_newer_file),
		cmocka_unit_test(test_lies),
		cmocka_unit_test(test_bad_strings),
		cmocka_unit_test(test_bombs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
