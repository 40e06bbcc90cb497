/* SPDX-License-Identifier: MIT */
/* Tarantool's sysprof files, byte for byte: every kind of event, both versions, cut, damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "moonspy/moonspy.h"
#include "output/formats.h"
#include "output/output.h"

#define SYMBOLS "ljs\3\0\0\0"
#define EVENTS "ljp\2\0\0\0"
#define EVENTS_1 "ljp\1\0\0\0"
#define END "\x80"
/* The record address, 2^62, and "msp". */
#define RECORD(size) "\x80\x80\x80\x80\x80\x80\x80\x80\x40" size "msp"

/* Addresses are one byte each: main 10, lua_pcall 20, lj_BC_CALL 30, gsub 40, lua_call 50; above 60
 * a library without symbols. Prototypes 1 and 2. */
#define TABLE \
	SYMBOLS "\0\1\7@fib.lu\0" \
		"\0\2\7@fib.lu\3" \
		"\1\x10\4main" \
		"\1\x20\11lua_pcall" \
		"\1\x30\12lj_BC_CALL" \
		"\1\x40\4gsub" \
		"\1\x50\10lua_call" \
		"\1\x60\12/lib/x.so\0" \
		"\2\5\2\4" END

static int read_stream(const void *data, size_t size, struct msp_profile **out, char error[200])
{
	FILE *in = size ? fmemopen((void *)data, size, "r") : fopen("/dev/null", "r");
	int err = msp_read_profile(in, out, error, 200);

	fclose(in);
	return err;
}

static void assert_folded(const struct msp_profile *p, bool vm_frames, const char *expected)
{
	struct msp_view view = {.vm_frames = vm_frames};
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_int_equal(msp_format_write(msp_format_by_name("folded"), p, &view, out), 0);
	fclose(out);
	assert_string_equal(text, expected);
	free(text);
}

/* With what reading says: "" nothing. */
static struct msp_profile *assert_read(const void *data, size_t size, const char *note)
{
	struct msp_profile *p;
	char error[200];

	assert_int_equal(read_stream(data, size, &p, error), 0);
	assert_string_equal(error, note);
	assert_non_null(p);
	return p;
}

#define READ(literal) assert_read(literal, sizeof(literal) - 1, "")

static void assert_refused(const void *data, size_t size, const char *reason)
{
	struct msp_profile *p;
	char error[200];

	assert_int_equal(read_stream(data, size, &p, error), MSP_E_FORMAT);
	assert_null(p);
	assert_string_equal(error, reason);
}

#define REFUSED(literal, reason) assert_refused(literal, sizeof(literal) - 1, reason)

static void test_empty(void **state)
{
	struct msp_profile *p = READ(SYMBOLS END EVENTS END);

	assert_int_equal(msp_profile_stack_count(p), 0);
	assert_int_equal(msp_profile_quality_of(p)->samples, 0);
	msp_profile_free(p);
}

/* Lua frames stand where the host calls Lua, a C function once, the interpreter only if asked for. */
static void test_joined(void **state)
{
#define NESTED \
	TABLE EVENTS "\1" \
		     "\1\2\3\2\x41\1\2\3\1\1\0\x80" \
		     "\x31\x51\x41\x32\x21\x11\0" END
	struct msp_profile *p = READ(NESTED);

	assert_folded(p, false,
		      "main;lua_pcall;main chunk (fib.lu:0);anonymous (fib.lu:3);gsub;lua_call;"
		      "anonymous (fib.lu:3) 1\n");
	assert_folded(p, true,
		      "main;lua_pcall;main chunk (fib.lu:0);anonymous (fib.lu:3);[luajit vm];gsub;"
		      "lua_call;anonymous (fib.lu:3);[luajit vm] 1\n");
	assert_int_equal(msp_profile_quality_of(p)->whole, 1);
	msp_profile_free(p);
}

static void test_fast_and_c(void **state)
{
	/* A fast function on top; a C function that the host's stack does not have. */
	struct msp_profile *p = READ(TABLE EVENTS "\2\3\14\1\2\3\x80\x31\x21\0"
						  "\3\2\x42\1\2\3\x80\x21\0" END);

	assert_folded(p, false,
		      "lua_pcall;anonymous (fib.lu:3);fast function 12 1\n"
		      "lua_pcall;anonymous (fib.lu:3);gsub 1\n");
	msp_profile_free(p);
}

/* Outer coroutines are not in a sample: the Lua frames that are belong to the innermost call. */
static void test_coroutine(void **state)
{
	struct msp_profile *p = READ(TABLE EVENTS "\1\1\2\3\x80\x51\x41\x21\0" END);

	assert_folded(p, false, "lua_pcall;gsub;lua_call;anonymous (fib.lu:3) 1\n");
	msp_profile_free(p);
}

/* A host's stack in which no call is known: all is there, in an order. */
static void test_no_call(void **state)
{
	struct msp_profile *p = READ(TABLE EVENTS "\1\1\2\3\2\x42\1\1\0\x80\x65\x11\0"
						  "\1\1\x77\7\x80\5\0" END);

	assert_folded(p, false,
		      "anonymous (?:7);0x5 1\n"
		      "main;x.so+0x5;main chunk (fib.lu:0);gsub;anonymous (fib.lu:3) 1\n");
	msp_profile_free(p);
}

/* More runs than calls: the outermost come with the first call. */
static void test_few_calls(void **state)
{
	struct msp_profile *p = READ(TABLE EVENTS "\1\1\2\3\2\x42\1\1\0\x80\x51\0" END);

	assert_folded(p, false, "lua_call;main chunk (fib.lu:0);gsub;anonymous (fib.lu:3) 1\n");
	msp_profile_free(p);
}

/* States without a Lua stack; a trace, of which only the start is said. Both are marked, and counted. */
static void test_host_and_trace(void **state)
{
	struct msp_profile *p = READ(TABLE EVENTS "\0\x11\0"
						  "\4\x31\x21\x11\0"
						  "\5\x31\0\6\x31\0\7\x31\0\10\x31\0"
						  "\11\5\2\3" END);
	const struct msp_quality *q = msp_profile_quality_of(p);

	assert_folded(p, false,
		      "[error: the file has only the trace];anonymous (fib.lu:3)_[j] 1\n"
		      "[jit compiler] 3\n"
		      "[trace exit] 1\n"
		      "main 1\n"
		      "main;lua_pcall;[gc] 1\n");
	assert_int_equal(q->samples, 7);
	assert_int_equal(q->whole, 5);
	assert_string_equal(q->errors[0].reason, "the file has no Lua stack for it");
	assert_string_equal(q->errors[1].reason, "the file has only the trace");
	msp_profile_free(p);
}

/* Symbols that come between samples; a prototype in the place of another. */
static void test_new_symbols(void **state)
{
	struct msp_profile *p = READ(TABLE EVENTS "\1\1\2\3\x80\x21\0"
						  "\12\2\6=other\4"
						  "\13\x20\10lua_call"
						  "\14\5\1\1"
						  "\1\1\2\4\x80\x21\0" END);

	assert_folded(p, false,
		      "lua_call;anonymous (other:4) 1\n"
		      "lua_pcall;anonymous (fib.lu:3) 1\n");
	msp_profile_free(p);
}

/* In version 1 the only new symbols are those of C, with another number. */
static void test_version_1(void **state)
{
	struct msp_profile *p = READ(TABLE EVENTS_1 "\12\x28\4more\0\x29\0" END);

	assert_folded(p, false, "more 1\n");
	msp_profile_free(p);
	p = assert_read(TABLE EVENTS_1 "\0\x29\0" END, sizeof(TABLE EVENTS_1 "\0\x29\0" END) - 1,
			"");
	msp_profile_free(p);
}

#define FRAME_MAIN \
	"\13" RECORD("\x19") "f\5\1\5main\0\0\0\0\6" \
			     "a.out\0\x80\x02\0"
#define FRAME_FIB "\13" RECORD("\x18") "f\1\1\4fib\0\7fib.lu\0\3\4\0\0\5"
#define FRAME_ERROR "\13" RECORD("\x1a") "f\10\1\15[error: why]\0\0\0\0\0\0\0"
#define SAMPLE(size, rest) "\13" RECORD(size) "s" rest

/* What moonspy adds is taken in place of the sample behind it, and gives more. */
static void test_records(void **state)
{
	static const char data[] = TABLE EVENTS "\13" RECORD(
		"\15") "i\4key\0\3v2\0" FRAME_MAIN FRAME_FIB
		SAMPLE("\11", "\7\7\2\0\1") "\11\5\2\3" FRAME_ERROR SAMPLE(
			"\11",
			"\7\7\2\2\1") "\0\x11\0"
				      "\13" RECORD(
					      "\12") "n\7\0\3th\0"
						     "\13" RECORD(
							     "\11") "?what?"
								    "\0\x11\0"
								    "\13" RECORD(
									    "\11") "e\2\xe8\7\xe8"
										   "\7" END;
	struct msp_profile *p = READ(data);
	const struct msp_quality *q = msp_profile_quality_of(p);

	assert_folded(p, false,
		      "process 0;main 1\n"
		      "process 7 (th);[error: why];fib (fib.lu:3)_[j] 1\n"
		      "process 7 (th);main (a.out);fib (fib.lu:3)_[j] 1\n");
	assert_string_equal(msp_profile_meta(p, "key"), "v2");
	assert_int_equal(q->samples, 3);
	assert_int_equal(q->whole, 2);
	assert_int_equal(q->lost, 2);
	assert_int_equal(q->rate, 1000);
	assert_true(q->seconds == 1.0);
	assert_string_equal(q->errors[0].reason, "why");
	msp_profile_free(p);
}

/* Cut at any byte: whole samples are kept, or it is said that there are none. Never more than there were. */
static void test_cut(void **state)
{
	static const char data[] = NESTED;
	static const char twice[] = TABLE EVENTS "\0\x11\0\0\x11\0" END;
	struct msp_profile *p;
	char error[200];

	for (size_t size = 0; size < sizeof(data) - 2; size++) {
		assert_int_equal(read_stream(data, size, &p, error), MSP_E_FORMAT);
		assert_null(p);
		assert_non_null(strstr(error, size ? "ends early" : "ends"));
	}
	p = assert_read(data, sizeof(data) - 2, "the file ends early, at byte 124");
	assert_int_equal(msp_profile_quality_of(p)->samples, 1);
	msp_profile_free(p);
	p = assert_read(twice, sizeof(twice) - 3, "the file ends early, at byte 109");
	assert_int_equal(msp_profile_quality_of(p)->samples, 1);
	msp_profile_free(p);
}

/* Damage in the middle: an error, and what was read before it. */
static void test_damaged(void **state)
{
	static const char data[] = TABLE EVENTS "\0\x11\0\x7f garbage";
	struct msp_profile *p;
	char error[200];

	assert_int_equal(read_stream(data, sizeof(data) - 1, &p, error), MSP_E_FORMAT);
	assert_string_equal(error, "byte 108: no kind of event");
	assert_folded(p, false, "main 1\n");
	msp_profile_free(p);
}

static void test_refused(void **state)
{
	REFUSED("lua", "the file ends early, at byte 3");
	REFUSED("ljx\3\0\0\0", "not a sysprof file");
	REFUSED("ljs\2\0\0\0", "version 2 of the table of symbols is not known");
	REFUSED("ljs\4\0\0\0", "version 4 of the table of symbols is not known");
	REFUSED(SYMBOLS "\3", "byte 8: no kind of symbol");
	REFUSED(SYMBOLS "\1\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\1x",
		"the file ends early, at byte 20");
	REFUSED(SYMBOLS "\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\2x",
		"byte 18: a number has more than 64 bits");
	REFUSED(SYMBOLS END "ljm\3\0\0\0", "a profile of memory, not of CPU time");
	REFUSED(SYMBOLS END "ljq\2\0\0\0", "byte 15: no events");
	REFUSED(SYMBOLS END "ljp\3\0\0\0", "version 3 of the events is not known");
	REFUSED(SYMBOLS END "ljp\0\0\0\0", "version 0 of the events is not known");
	REFUSED(SYMBOLS END EVENTS "\1\4\1", "byte 17: no kind of frame");
	REFUSED(SYMBOLS END EVENTS "\15", "byte 16: no kind of event");
	REFUSED(SYMBOLS END EVENTS_1 "\13\1\1x", "byte 16: no kind of event");
	/* Records: a frame that is not there, text without an end, a kind that is none. */
	REFUSED(SYMBOLS END EVENTS SAMPLE("\10", "\7\7\1\0"),
		"byte 34: a broken record of moonspy's");
	REFUSED(SYMBOLS END EVENTS "\13" RECORD("\10") "i\2ab\1",
		"byte 34: a broken record of moonspy's");
	REFUSED(SYMBOLS END EVENTS "\13" RECORD("\14") "f\11\1\0\0\0\0\0\0",
		"byte 38: a broken record of moonspy's");
}

/* A stack that is too deep is cut where it is deepest, and marked. */
static void test_deep(void **state)
{
	struct msp_profile *p;
	char *data = NULL;
	size_t size;
	FILE *out = open_memstream(&data, &size);

	fwrite(TABLE EVENTS "\0", sizeof(TABLE EVENTS "\0") - 1, 1, out);
	for (int i = 0; i < 5000; i++)
		putc(i % 2 ? 0x11 : 0x21, out);
	fwrite("\0" END, 2, 1, out);
	fclose(out);
	p = assert_read(data, size, "");
	free(data);
	assert_int_equal(msp_profile_quality_of(p)->samples, 1);
	assert_int_equal(msp_profile_quality_of(p)->truncated, 1);
	msp_profile_free(p);
}

/* Memory is for stacks that differ, not for samples. */
static void test_memory(void **state)
{
	struct msp_profile *p;
	size_t size, took[2], i = 0;

	for (int samples = 1000; samples <= 100000; samples *= 100) {
		char *data = NULL;
		FILE *out = open_memstream(&data, &size);

		fwrite(TABLE EVENTS, sizeof(TABLE EVENTS) - 1, 1, out);
		for (int k = 0; k < samples; k++)
			fwrite("\1\1\2\3\x80\x21\x11\0\0\x11\0", 11, 1, out);
		fwrite(END, 1, 1, out);
		fclose(out);
		p = assert_read(data, size, "");
		assert_int_equal(msp_profile_quality_of(p)->samples, 2 * samples);
		took[i++] = msp_profile_memory(p);
		msp_profile_free(p);
		free(data);
	}
	assert_int_equal(took[0], took[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_joined),
		cmocka_unit_test(test_fast_and_c),
		cmocka_unit_test(test_coroutine),
		cmocka_unit_test(test_no_call),
		cmocka_unit_test(test_few_calls),
		cmocka_unit_test(test_host_and_trace),
		cmocka_unit_test(test_new_symbols),
		cmocka_unit_test(test_version_1),
		cmocka_unit_test(test_records),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_deep),
		cmocka_unit_test(test_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
