/* SPDX-License-Identifier: MIT */
/* A LuaJIT with a trace in which three functions are active, one inside of the other. */
#ifndef LUAJIT_TRACE_HELP_H
#define LUAJIT_TRACE_HELP_H

#include "luajit_help.h"

#include "luajit/trace_image.h"

/* leaf has guards of its own, so that places inside of it are certain. The second part reuses numbers. */
#define SCRIPT \
	"local function leaf(x) if x > 1e9 then return 0 end x = x * 2 " \
	"if x > 1e8 then return 1 end return x + 1 end\n" \
	"local function middle(x) if x > 2e9 then return 2 end local y = leaf(x) return y + 3 " \
	"end\n" \
	"local s = 0 for i = 1, 1e4 do s = s + middle(i) end\n" \
	"io.write('ready') io.flush() io.read()\n" \
	"jit.flush()\n" \
	"local function other(x) if x > 3e9 then return 5 end return x - 1 end\n" \
	"for i = 1, 1e4 do s = s + other(i) end\n" \
	"io.read()\n"

struct fixture {
	struct lua_child child;
	const struct msp_memory *mem;
	const struct msp_lj_layout *layout;
	uint64_t g;
};

static inline int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	*state = f;
	if (!f || !have_file(LUAJIT))
		return 0;
	lua_start(&f->child, SCRIPT, "-O3");
	lua_attach(&f->child);
	f->mem = msp_process_memory(f->child.process);
	f->layout = msp_lj_build_layout(f->child.build);
	f->g = f->child.g[0];
	return f->child.g_count == 1 && f->layout ? 0 : -1;
}

static inline int tear_down(void **state)
{
	struct fixture *f = *state;

	if (f->layout)
		lua_stop(&f->child);
	free(f);
	return 0;
}

static inline uint64_t trace_object(const struct fixture *f, uint32_t number)
{
	return msp_trace_find(f->layout, f->mem, f->g, number);
}

/* The loop's trace: the first one whose snapshots show three functions inside of each other. */
static inline struct msp_trace_image *find_loop(const struct fixture *f)
{
	struct msp_trace_image *image;

	for (uint32_t n = 1; n < 64; n++) {
		uint64_t at = trace_object(f, n);

		if (!at || msp_trace_image_read(f->layout, f->mem, f->g, at, NULL, NULL, 0, &image))
			continue;
		assert_int_equal(image->number, n);
		for (uint32_t i = 1; i < image->node_count; i++) {
			uint16_t up = image->node[i].parent;

			if (up && image->node[up].parent)
				return image;
		}
		msp_trace_image_free(image);
	}
	return NULL;
}

static inline struct msp_raw_frame vm_frame(const struct msp_trace_image *image, uint32_t offset)
{
	return (struct msp_raw_frame){.kind = MSP_RAW_VM,
				      .flags = MSP_RAWF_JIT,
				      .trace = image->number,
				      .tofs = offset,
				      .ident = msp_trace_image_ident(image, offset)};
}

static inline struct msp_raw_frame base_frame(const struct msp_trace_image *image)
{
	return (struct msp_raw_frame){.kind = MSP_RAW_LUA,
				      .flags = MSP_RAWF_JIT,
				      .addr = image->node[1].addr,
				      .ident = image->node[1].ident};
}

#endif
