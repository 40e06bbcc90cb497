/* SPDX-License-Identifier: MIT */
#include "output_synthetic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG_NAME 10000

/* splitmix64 */
static uint64_t next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static void describe(struct msp_profile *p, const char *command, uint64_t samples, double seconds,
		     uint32_t rate)
{
	struct msp_quality *q = msp_profile_quality(p);

	msp_profile_set_meta(p, "version", "0.1.0");
	msp_profile_set_meta(p, "command", command);
	msp_profile_set_meta(p, "event", "cpu");
	msp_profile_set_meta(p, "start", "2026-03-01T12:34:56Z");
	*q = (struct msp_quality){.samples = samples,
				  .whole = samples,
				  .seconds = seconds,
				  .rate = rate,
				  .bpf_ns_per_sample = 8200};
}

static uint32_t frame(struct msp_profile *p, enum msp_frame_kind kind, const char *name,
		      const char *file, uint32_t defined, uint32_t line)
{
	bool lua = kind <= MSP_FRAME_INLINED;
	struct msp_frame f = {.kind = kind, .certain = true, .name = name};

	f.file = lua ? file : NULL;
	f.object = lua ? NULL : file;
	f.defined = lua ? defined : 0;
	f.line = lua ? line : 0;
	f.address = lua ? 0 : defined;
	f.trace = kind == MSP_FRAME_JIT || kind == MSP_FRAME_INLINED ? 1 + defined % 40 : 0;
	return (uint32_t)msp_profile_frame(p, &f);
}

struct call {
	enum msp_frame_kind kind;
	const char *name, *file;
	uint32_t defined, line;
};

/* Every path: '>' in count's place means the next line goes on from here. */
#define NATIVE MSP_FRAME_NATIVE
#define LUA MSP_FRAME_LUA
#define JIT MSP_FRAME_JIT
#define INLINED MSP_FRAME_INLINED
#define FAST MSP_FRAME_FAST
#define CFUNCTION MSP_FRAME_CFUNCTION
#define KERNEL MSP_FRAME_KERNEL
#define STATE MSP_FRAME_STATE

static const struct {
	int depth; /* below how many frames of the line before */
	struct call call;
	uint64_t self;
} server[] = {
	{0, {NATIVE, "_start", "nginx", 0x3f0}, 0},
	{1, {NATIVE, "main", "nginx", 0x1100}, 0},
	{2, {NATIVE, "ngx_worker_process_cycle", "nginx", 0x2200}, 3},
	{3, {NATIVE, "ngx_process_events_and_timers", "nginx", 0x3300}, 9},
	{4, {NATIVE, "ngx_epoll_process_events", "nginx", 0x4400}, 21},
	{5, {NATIVE, "epoll_wait", "libc.so.6", 0x5500}, 4},
	{6, {KERNEL, "entry_SYSCALL_64_after_hwframe", "[kernel]", 0x81000}, 5},
	{7, {KERNEL, "do_syscall_64", "[kernel]", 0x82000}, 7},
	{8, {KERNEL, "do_epoll_wait", "[kernel]", 0x83000}, 61},
	{5, {NATIVE, "ngx_http_process_request", "nginx", 0x6600}, 12},
	{6, {NATIVE, "ngx_http_core_content_phase", "nginx", 0x7700}, 6},
	{7, {NATIVE, "ngx_http_lua_content_handler", "ngx_http_lua_module.so", 0x8800}, 8},
	{8, {NATIVE, "ngx_http_lua_run_thread", "ngx_http_lua_module.so", 0x9900}, 11},
	{9, {NATIVE, "lua_resume", "libluajit-5.1.so.2", 0xaa00}, 5},
	{10, {LUA, "content_by_lua", "nginx.conf", 31, 33}, 14},
	{11, {LUA, "dispatch", "app/router.lua", 118, 131}, 88},
	{12, {JIT, "handler", "app/api.lua", 41, 57}, 120},
	{13, {JIT, "encode", "app/json.lua", 12, 40}, 260},
	{14, {INLINED, "escape", "app/json.lua", 77, 81}, 190},
	{14, {JIT, "encode", "app/json.lua", 12, 44}, 210},
	{15, {JIT, "encode", "app/json.lua", 12, 44}, 130},
	{16, {INLINED, "escape", "app/json.lua", 77, 80}, 95},
	{16, {STATE, "[gc]", NULL}, 66},
	{14, {FAST, "string.gsub", NULL}, 75},
	{15, {LUA, "anonymous", "app/json.lua", 80, 80}, 40},
	{13, {INLINED, "clamp", "app/vec.lua", 12, 14}, 83},
	{13, {CFUNCTION, "lua_cjson_decode", "cjson.so", 0xcc00}, 55},
	{14, {NATIVE, "strbuf_append", "cjson.so", 0xdd00}, 37},
	{15, {NATIVE, "__memmove_avx_unaligned", "libc.so.6", 0xee00}, 44},
	{13, {LUA, "query", "app/db.lua", 203, 219}, 70},
	{14, {FAST, "coroutine.yield", NULL}, 4},
	{14, {LUA, "read_reply", "resty/redis.lua", 160, 171}, 52},
	{15, {FAST, "string.sub", NULL}, 33},
	{15, {CFUNCTION, "ngx_http_lua_socket_tcp_receive", "ngx_http_lua_module.so", 0xff00}, 29},
	{16, {NATIVE, "recv", "libc.so.6", 0x11100}, 3},
	{17, {KERNEL, "entry_SYSCALL_64_after_hwframe", "[kernel]", 0x81000}, 3},
	{18, {KERNEL, "do_syscall_64", "[kernel]", 0x82000}, 4},
	{19, {KERNEL, "tcp_recvmsg", "[kernel]", 0x84000}, 71},
	{12, {LUA, "match", "app/router.lua", 60, 75}, 58},
	{13, {FAST, "string.find", NULL}, 91},
	{13, {STATE, "[jit compiler]", NULL}, 62},
	{13, {STATE, "[trace exit]", NULL}, 21},
	{11, {STATE, "[gc]", NULL}, 78},
	{12, {NATIVE, "propagatemark", "libluajit-5.1.so.2", 0x12200}, 40},
	{10, {MSP_FRAME_ERROR, "[error: no row]", NULL}, 2},
	{0, {MSP_FRAME_ERROR, "[truncated]", NULL}, 0},
	{1, {LUA, "walk", "app/tree.lua", 5, 9}, 2},
};

struct msp_profile *synthetic_server(void)
{
	struct msp_profile *p = msp_profile_new();
	uint32_t ids[64];
	uint64_t samples = 0;

	for (size_t i = 0; p && i < sizeof(server) / sizeof(*server); i++) {
		const struct call *c = &server[i].call;
		int depth = server[i].depth;

		ids[depth] = frame(p, c->kind, c->name, c->file, c->defined, c->line);
		if (c->kind == INLINED) {
			struct msp_frame f = *msp_profile_frame_at(p, ids[depth]);

			f.certain = strcmp(c->name, "clamp") != 0;
			f.trace = msp_profile_frame_at(p, ids[depth - 1])->trace;
			ids[depth] = (uint32_t)msp_profile_frame(p, &f);
		}
		if (server[i].self)
			msp_profile_add(p, 4711, 4711, ids, (size_t)depth + 1, server[i].self);
		samples += server[i].self;
	}
	if (!p)
		return NULL;
	msp_profile_set_name(p, 4711, 0, "nginx");
	msp_profile_set_object(p, "nginx", "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
			       "/usr/sbin/nginx");
	msp_profile_set_object(p, "libc.so.6", "feedc0de", "/lib/libc.so.6");
	msp_profile_set_object(p, "cjson.so", NULL, "/usr/lib/lua/cjson.so");
	msp_profile_add_vm_events(p, 4711, 0x7f0000001230, "traces made", 12);
	describe(p, "nginx: worker process", samples, 30.0, 99);
	msp_profile_quality(p)->whole = samples - 4;
	msp_profile_quality(p)->truncated = 2;
	msp_profile_quality(p)->estimated = 83;
	msp_quality_error(msp_profile_quality(p), "no row", 2);
	return p;
}

static const char *const hostile[] = {
	"semi;colon",
	"two words",
	"ends in number 42",
	"\"quoted\"",
	"'single'",
	"new\nline",
	"tab\tand\rreturn",
	"bell\a and \x1b[31mcolour",
	"\x7f",
	"back\\slash",
	"\\x3b",
	"\\\\",
	"",
	" ",
	";",
	"invalid \xff\xfe bytes",
	"cut \xe2\x82",
	"overlong \xc0\xaf",
	"surrogate \xed\xa0\x80",
	"too high \xf4\x90\x80\x80",
	"c1 \xc2\x85 control",
	"separators \xe2\x80\xa8 \xe2\x80\xa9",
	"right to left \xe2\x80\xae gnp.exe",
	"byte order \xef\xbb\xbf",
	"d\xc3\xa9j\xc3\xa0 vu",
	"\xe6\x9c\x88\xe3\x81\xae\xe3\x82\xb9\xe3\x83\x91\xe3\x82\xa4",
	"moon \xf0\x9f\x8c\x99",
	"</script><img src=x onerror=window.injected=1>",
	"<!--<script>",
	"]]>",
	"&lt;&amp;",
	"${window.injected=1}",
	"javascript:window.injected=1",
	"__proto__",
	"constructor",
	"a_[j]",
	"[truncated]",
	"process 1 (x)",
	"~estimate",
	"\u2028",
	"%s%n",
	"name (file:1)_[k]"};

struct msp_profile *synthetic_hostile(void)
{
	struct msp_profile *p = msp_profile_new();
	char long_name[LONG_NAME + 1];
	uint64_t samples = 0;
	size_t n = sizeof(hostile) / sizeof(*hostile);

	if (!p)
		return NULL;
	for (size_t i = 0; i < LONG_NAME; i++)
		long_name[i] = "0123456789<\xff"[i % 12];
	long_name[LONG_NAME] = 0;
	for (size_t i = 0; i <= n; i++) {
		const char *name = i < n ? hostile[i] : long_name;
		uint32_t ids[MSP_FRAME_KIND_COUNT];

		for (int kind = 0; kind < MSP_FRAME_KIND_COUNT; kind++)
			ids[kind] = frame(p, (enum msp_frame_kind)kind, name, name,
					  (uint32_t)i * 0x10101010u, (uint32_t)(i + 1));
		for (size_t depth = 0; depth <= MSP_FRAME_KIND_COUNT; depth++) {
			int32_t pid = (int32_t)(1 + i % 3);

			msp_profile_add(p, pid, pid + (int32_t)(i & 4), ids, depth, 1 + i + depth);
			samples += 1 + i + depth;
		}
		msp_profile_set_name(p, (int32_t)(1 + i % 3), i & 4 ? (int32_t)i : 0, name);
		msp_profile_set_meta(p, name, name);
		msp_profile_set_object(p, name, name, name);
	}
	msp_profile_set_meta(p, "command", "</script><b>bold</b>");
	describe(p, "</script><b>bold</b> \xff", samples, 0.1, 999);
	msp_quality_error(msp_profile_quality(p), "</script>\xff;", 3);
	return p;
}

/* One frame of each number below 4,000, in kinds as a program has them. */
static uint32_t large_frame(struct msp_profile *p, uint32_t i)
{
	static const struct {
		uint32_t below;
		enum msp_frame_kind kind;
		const char *name, *file;
	} kinds[] = {
		{1800, LUA, "function_%u", "app/module_%u.lua"},
		{2600, JIT, "compiled_%u", "app/fast_%u.lua"},
		{3000, INLINED, "inlined_%u", "app/vec_%u.lua"},
		{3060, FAST, "string.f%u", NULL},
		{3200, CFUNCTION, "c_function_%u", "lib_%u.so"},
		{3700, NATIVE, "native_symbol_%u", "libnative_%u.so.6"},
		{3990, KERNEL, "kernel_function_%u", "[kernel]"},
		{4000, STATE, "[gc]", NULL},
	};
	char name[64], file[64];
	size_t k = 0;

	while (i >= kinds[k].below)
		k++;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(name, sizeof(name), kinds[k].name, i);
	snprintf(file, sizeof(file), kinds[k].file ? kinds[k].file : "", i % 97);
#pragma GCC diagnostic pop
	return frame(p, kinds[k].kind, name, kinds[k].file ? file : NULL, i * 16, i * 16 + i % 7);
}

/* A walk down a fixed call graph: callees depend on the caller and depth, so stacks begin alike. */
static size_t large_stack(uint64_t *random, const uint32_t *frames, uint32_t *ids)
{
	size_t depth = 10 + next(random) % 51;
	uint32_t at = 3200;

	for (size_t i = 0; i < depth; i++) {
		uint64_t r = next(random), branch = (r % 5) * (r >> 32) % 5;
		uint64_t callee = (uint64_t)at * 31 + i * 7 + branch * 1013;

		if (i < 4)
			at = 3200 + (uint32_t)i;
		else if (i + 1 < depth)
			at = (uint32_t)(callee % 3200);
		else
			at = (uint32_t)(callee % 4000);
		ids[i] = frames[at];
	}
	return depth;
}

struct synthetic_samples {
	uint32_t *ids, *size; /* of the distinct stacks, 64 ids each */
	size_t n, samples;
};

static int keep_stack(void *ctx, int32_t pid, int32_t tid, const uint32_t *ids, size_t n,
		      uint64_t count)
{
	struct synthetic_samples *s = ctx;

	memcpy(s->ids + s->n * 64, ids, n * sizeof(*ids));
	s->size[s->n++] = (uint32_t)n;
	return 0;
}

struct synthetic_samples *synthetic_samples(size_t samples, size_t stacks)
{
	struct synthetic_samples *s = calloc(1, sizeof(*s));
	struct msp_profile *distinct = msp_profile_new();
	uint32_t frames[4000], ids[64];
	uint64_t random = 1;

	if (!s || !distinct)
		return NULL;
	s->samples = samples;
	s->ids = calloc(stacks * 64, sizeof(*s->ids));
	s->size = calloc(stacks, sizeof(*s->size));
	for (uint32_t i = 0; i < 4000; i++)
		frames[i] = large_frame(distinct, i);
	while (s->n < stacks) {
		for (size_t i = s->n; i < stacks; i++) {
			size_t n = large_stack(&random, frames, ids);

			msp_profile_add(distinct, 1, 1, ids, n, 1);
		}
		s->n = 0;
		msp_profile_each(distinct, keep_stack, s);
	}
	msp_profile_free(distinct);
	return s;
}

void synthetic_samples_free(struct synthetic_samples *s)
{
	if (!s)
		return;
	free(s->ids);
	free(s->size);
	free(s);
}

struct msp_profile *synthetic_gather(const struct synthetic_samples *s)
{
	struct msp_profile *p = msp_profile_new();
	uint64_t random = 2;

	for (uint32_t i = 0; i < 4000; i++)
		large_frame(p, i);
	for (size_t i = 0; i < s->samples; i++) {
		double u = (double)(next(&random) >> 11) / (double)(1ull << 53);
		size_t at = i < s->n ? i : (size_t)((double)s->n * u * u);

		/* Each stack keeps to one thread, or there would be more of them. */
		msp_profile_add(p, 900, 900 + (int32_t)(at % 4), s->ids + at * 64, s->size[at], 1);
	}
	describe(p, "luajit large.lua", s->samples, 1001.0, 999);
	msp_profile_set_name(p, 900, 0, "luajit");
	return p;
}

struct msp_profile *synthetic_large(size_t samples, size_t stacks)
{
	struct synthetic_samples *s = synthetic_samples(samples, stacks);
	struct msp_profile *p = s ? synthetic_gather(s) : NULL;

	synthetic_samples_free(s);
	return p;
}

struct msp_profile *synthetic_by_name(const char *name)
{
	if (!strcmp(name, "server"))
		return synthetic_server();
	if (!strcmp(name, "hostile"))
		return synthetic_hostile();
	if (!strcmp(name, "large"))
		return synthetic_large(1000000, 50000);
	return NULL;
}
