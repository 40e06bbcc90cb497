/* SPDX-License-Identifier: MIT */
/* The table of formats, frame texts, escapes, the JSON writer, and outputs that fail. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "moonspy/moonspy.h"
#include "output/buffer.h"
#include "output/json_writer.h"
#include "output/output.h"
#include "output_synthetic.h"

static const char *format_of(const char *path)
{
	const struct msp_format *format = msp_format_by_file(path);

	return format ? format->name : "none";
}

static void test_formats(void **state)
{
	assert_string_equal(format_of("a/b.html"), "html");
	assert_string_equal(format_of("B.HTML"), "html");
	assert_string_equal(format_of("x.folded"), "folded");
	assert_string_equal(format_of("x.json"), "json");
	assert_string_equal(format_of("x.speedscope.json"), "speedscope");
	assert_string_equal(format_of("x.pb.gz"), "pprof");
	assert_string_equal(format_of("x.msp"), "msp");
	assert_string_equal(format_of("x.msp.txt"), "none");
	assert_string_equal(format_of(""), "none");
	assert_null(msp_format_by_name("xml"));
	assert_true(msp_format_by_name("msp")->raw);
	for (size_t i = 0; msp_format_at(i); i++)
		assert_ptr_equal(msp_format_by_name(msp_format_at(i)->name), msp_format_at(i));
}

static void assert_text(struct msp_frame frame, const char *plain, const char *lines)
{
	char text[200];

	assert_int_equal(msp_frame_text(&frame, false, text, sizeof(text)), strlen(plain));
	assert_string_equal(text, plain);
	msp_frame_text(&frame, true, text, sizeof(text));
	assert_string_equal(text, lines);
	/* However little room there is, it ends with a NUL and the length is that of all. */
	for (size_t size = 0; size < 12; size++) {
		memset(text, '#', sizeof(text));
		assert_int_equal(msp_frame_text(&frame, false, text, size), strlen(plain));
		assert_int_equal(text[size], '#');
		assert_true(!size || strlen(text) <= size - 1);
	}
}

#define BOTH(text) text, text

static void test_frame_texts(void **state)
{
	assert_text((struct msp_frame){MSP_FRAME_LUA, true, .name = "f", .file = "a.lua",
				       .defined = 3, .line = 9},
		    "f (a.lua:3)", "f (a.lua:3):9");
	assert_text((struct msp_frame){MSP_FRAME_LUA, true, .name = "main chunk", .file = "a.lua"},
		    BOTH("main chunk (a.lua:0)"));
	assert_text(
		(struct msp_frame){MSP_FRAME_JIT, true, .file = "a.lua", .defined = 3, .line = 9},
		"anonymous (a.lua:3)_[j]", "anonymous (a.lua:3):9_[j]");
	assert_text((struct msp_frame){MSP_FRAME_INLINED, false, .name = "f", .defined = 3},
		    BOTH("~f (?:3)_[i]"));
	assert_text((struct msp_frame){MSP_FRAME_FAST, true, .name = "string.gsub"},
		    BOTH("string.gsub"));
	assert_text((struct msp_frame){MSP_FRAME_CFUNCTION, true, .name = "c", .object = "c.so"},
		    BOTH("c (c.so)"));
	assert_text((struct msp_frame){MSP_FRAME_CFUNCTION, true, .object = "c.so", .address = 26},
		    BOTH("c.so+0x1a"));
	assert_text((struct msp_frame){MSP_FRAME_NATIVE, .name = "main", .object = "nginx"},
		    BOTH("main (nginx)"));
	assert_text((struct msp_frame){MSP_FRAME_NATIVE, .name = "", .object = "", .address = 26},
		    BOTH("0x1a"));
	assert_text((struct msp_frame){MSP_FRAME_NATIVE, .vm = true, .name = "lj_BC_CALL"},
		    BOTH("[luajit vm]"));
	assert_text((struct msp_frame){MSP_FRAME_KERNEL, .name = "do_read"}, BOTH("do_read_[k]"));
	assert_text((struct msp_frame){MSP_FRAME_KERNEL, .address = ~0ull},
		    BOTH("0xffffffffffffffff_[k]"));
	assert_text((struct msp_frame){MSP_FRAME_STATE, .name = "[gc]"}, BOTH("[gc]"));
	assert_text((struct msp_frame){MSP_FRAME_ERROR, .name = "[truncated]"},
		    BOTH("[truncated]"));
}

static void assert_escaped(const char *text, const char *expected)
{
	struct msp_buffer buffer = {0};

	msp_buffer_escaped(&buffer, text, ";");
	msp_buffer_char(&buffer, 0);
	assert_int_equal(buffer.err, 0);
	assert_string_equal(buffer.data, expected);
	msp_buffer_free(&buffer);
}

static void test_escapes(void **state)
{
	assert_escaped("plain text, d\xc3\xa9j\xc3\xa0 \xf0\x9f\x8c\x99",
		       "plain text, d\xc3\xa9j\xc3\xa0 \xf0\x9f\x8c\x99");
	assert_escaped("a;b\\c\n\x7f\x01", "a\\x3bb\\\\c\\x0a\\x7f\\x01");
	assert_escaped("\xff\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xc3",
		       "\\xff\\xc0\\xaf\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80\\xc3");
	assert_escaped("\xe0\x80\x80\xf0\x80\x80\x80", "\\xe0\\x80\\x80\\xf0\\x80\\x80\\x80");
	assert_escaped("\xc2\x85\xe2\x80\xa8\xe2\x80\xae\xef\xbb\xbf",
		       "\\xc2\\x85\\xe2\\x80\\xa8\\xe2\\x80\\xae\\xef\\xbb\\xbf");
	assert_escaped("", "");
}

static void test_json_writer(void **state)
{
	struct msp_json json = {0};

	msp_json_object(&json);
	msp_json_key(&json, "a\"<\n");
	msp_json_array(&json);
	msp_json_array(&json);
	msp_json_uint(&json, UINT64_MAX);
	msp_json_int(&json, INT64_MIN);
	msp_json_double(&json, 0.1);
	msp_json_double(&json, NAN);
	msp_json_bool(&json, true);
	msp_json_hex(&json, 255);
	msp_json_end(&json);
	msp_json_string(&json, NULL);
	json.html = true;
	msp_json_string(&json, "</script>\xff\\");
	msp_json_end(&json);
	msp_json_key(&json, "b");
	msp_json_object(&json);
	msp_json_end(&json);
	msp_json_end(&json);
	msp_buffer_char(&json.buffer, 0);
	assert_string_equal(
		json.buffer.data,
		"{\n\"a\\\"<\\u000a\":[\n[18446744073709551615,-9223372036854775808,0.1,"
		"null,true,\"0xff\"],\nnull,\n\"\\u003c/script>\\\\xff\\\\\\\\\"],\n"
		"\"b\":{}}");
	msp_buffer_free(&json.buffer);
}

/* A full disk: every format says so, whether it shows at a write or only at the end. */
static void test_disk_full(void **state)
{
	const char *names[] = {"server", "hostile"};

	for (size_t i = 0; i < 2; i++) {
		struct msp_profile *p = synthetic_by_name(names[i]);
		const struct msp_format *format;

		for (size_t j = 0; (format = msp_format_at(j)); j++) {
			struct msp_view view = {0};
			FILE *full = fopen("/dev/full", "w");

			assert_non_null(full);
			errno = 0;
			assert_int_equal(msp_format_write(format, p, &view, full), MSP_E_IO);
			assert_int_equal(errno, ENOSPC);
			fclose(full);
		}
		msp_profile_free(p);
	}
}

static void test_empty_profile(void **state)
{
	struct msp_profile *p = msp_profile_new();
	const struct msp_format *format;

	for (size_t i = 0; (format = msp_format_at(i)); i++) {
		struct msp_view view = {0};
		char *text = NULL;
		size_t size = 0;
		FILE *out = open_memstream(&text, &size);

		assert_int_equal(msp_format_write(format, p, &view, out), 0);
		fclose(out);
		assert_true(size > 0 || !strcmp(format->name, "folded"));
		free(text);
	}
	msp_profile_free(p);
}

/* The deepest stack there can be, in every format, with a process and a thread above it. */
static void test_deepest_stack(void **state)
{
	struct msp_profile *p = msp_profile_new();
	uint32_t *ids = calloc(MSP_PROFILE_MAX_STACK, sizeof(*ids));
	struct msp_frame f = {.kind = MSP_FRAME_LUA, .certain = true, .name = "f"};
	const struct msp_format *format;

	msp_profile_frame(p, &f);
	msp_profile_add(p, 1, 2, ids, MSP_PROFILE_MAX_STACK, 1);
	msp_profile_add(p, 3, 4, ids, MSP_PROFILE_MAX_STACK, 1);
	for (size_t i = 0; (format = msp_format_at(i)); i++) {
		struct msp_view view = {.threads = true};
		FILE *out = fopen("/dev/null", "w");

		assert_int_equal(msp_format_write(format, p, &view, out), 0);
		fclose(out);
	}
	free(ids);
	msp_profile_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_formats),	      cmocka_unit_test(test_frame_texts),
		cmocka_unit_test(test_escapes),	      cmocka_unit_test(test_json_writer),
		cmocka_unit_test(test_disk_full),     cmocka_unit_test(test_empty_profile),
		cmocka_unit_test(test_deepest_stack),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
