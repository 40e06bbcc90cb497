/* SPDX-License-Identifier: MIT */
/* A target that lies: random memory, broken prototypes, memory that changes, chunks without end. */
#include "names_help.h"

/* LuaJIT 2.1, x86-64 with GC64, for memory that is made up. */
static const struct msp_lj_layout fixed_layout = {
	.abi = MSP_LJ_LAYOUT_ABI,
	.arch = MSP_ARCH_X86_64,
	.gc64 = 1,
	.fr2 = 1,
	.jit = 1,
	.bc_funcf = 89,
	.bc_funccw = 96,
	.gc_gct = 9,
	.fn_ffid = 10,
	.fn_pc = 32,
	.pt_size = 104,
	.pt_numparams = 10,
	.pt_framesize = 11,
	.pt_sizebc = 12,
	.pt_k = 32,
	.pt_sizekgc = 48,
	.pt_sizekn = 52,
	.pt_sizept = 56,
	.pt_sizeuv = 60,
	.pt_flags = 61,
	.pt_trace = 62,
	.pt_chunkname = 64,
	.pt_firstline = 72,
	.pt_numline = 76,
	.pt_lineinfo = 80,
	.pt_uvinfo = 88,
	.pt_varinfo = 96,
	.str_len = 20,
	.str_data = 24,
};

static const struct msp_lj_layout *layout = &fixed_layout;
static uint64_t seed = 0x9e3779b97f4a7c15ull;

static uint64_t random64(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* Asks for whatever has a header at an address, as the walker would. 0: there was none. */
static int ask(struct msp_lj_names *names, const struct msp_memory *mem, uint64_t addr,
	       uint64_t caller)
{
	_Alignas(8) uint8_t header[MSP_PROTO_HEADER_MAX];
	const struct msp_lj_function *fn;
	uint64_t ident;

	if (msp_proto_read_header(layout, mem, addr, header))
		return 0;
	ident = msp_proto_ident(header, layout);
	if (!msp_lj_names_function(names, addr, ident, caller, random64() % 64, &fn)) {
		assert_true(strlen(fn->name) < MSP_NAME_MAX);
		assert_true(strlen(fn->file) < MSP_LABEL_MAX);
		assert_true(strlen(fn->chunk) < MSP_CHUNK_MAX);
	}
	for (int i = 0; i < 4; i++)
		msp_lj_names_line(names, addr, ident, random64() >> (random64() % 64));
	return 1;
}

/* Memory whose content follows from its address, and looks like objects now and then. */
static int read_noise(void *ctx, uint64_t addr, void *buf, size_t size)
{
	uint8_t *p = buf;

	(void)ctx;
	if (addr > 1ull << 46)
		return MSP_E_FAULT;
	for (size_t i = 0; i < size; i++) {
		uint64_t h = ((addr + i) >> 3) * 0x9e3779b97f4a7c15ull;

		h ^= h >> 31;
		/* Small numbers and pointers to near by are what can get past the checks. */
		if (h & 1)
			h = (addr & ~0xfffull) + (h >> 8 & 0xff8);
		else if (h & 2)
			h = h >> 8 & 0x07ff00070708ull;
		p[i] = h >> ((addr + i) % 8 * 8);
	}
	return 0;
}

static void test_noise(void **state)
{
	struct msp_memory mem = {read_noise, NULL};
	struct msp_lj_names *names = msp_lj_names_new_layout(layout, &mem, 0x10000);
	uint64_t start = now_us();

	(void)state;
	assert_int_equal(msp_lj_names_add_range(names, 0x100000, 0x400000), 0);
	msp_lj_names_index(names, 500000);
	for (int i = 0; i < 3000; i++)
		ask(names, &mem, random64() & 0xfffff8, random64() & 0xfffff8);
	msp_lj_names_free(names);
	assert_true(now_us() - start < 20000000);
}

/* ---- A real process's memory, broken ---- */

#define PIECES_MAX 256

static struct {
	uint64_t start;
	size_t size;
	uint8_t *data;
} piece[PIECES_MAX];
static int pieces;
static int changing; /* a byte in so many reads changes while it is read */

static int read_copy(void *ctx, uint64_t addr, void *buf, size_t size)
{
	(void)ctx;
	for (int i = 0; i < pieces; i++) {
		if (addr < piece[i].start || addr - piece[i].start > piece[i].size ||
		    size > piece[i].size - (addr - piece[i].start))
			continue;
		memcpy(buf, piece[i].data + (addr - piece[i].start), size);
		if (changing && size && random64() % changing == 0)
			((uint8_t *)buf)[random64() % size] ^= 1 << random64() % 8;
		return 0;
	}
	return MSP_E_FAULT;
}

static struct lua lua;

static int setup(void **state)
{
	(void)state;
	lua_start(&lua, (const char *[]){WORKLOADS "/names.lua", NULL});
	lua_look(&lua);
	layout = &lua_layout;
	for (int i = 0; i < lua.ranges; i++) {
		size_t size = lua.range[i][1] - lua.range[i][0];
		uint8_t *data = malloc(size);

		assert_non_null(data);
		if (size > 4 << 20 || lua_read(&lua, lua.range[i][0], data, size)) {
			free(data);
			continue;
		}
		piece[pieces].start = lua.range[i][0];
		piece[pieces].size = size;
		piece[pieces++].data = data;
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	lua_stop(&lua);
	for (int i = 0; i < pieces; i++)
		free(piece[i].data);
	return 0;
}

static uint8_t *local(uint64_t addr)
{
	for (int i = 0; i < pieces; i++)
		if (addr >= piece[i].start && addr < piece[i].start + piece[i].size)
			return piece[i].data + (addr - piece[i].start);
	return NULL;
}

static void ask_all(const struct msp_memory *mem)
{
	struct msp_lj_names *names = msp_lj_names_new_layout(layout, mem, piece[0].start);
	uint64_t start;

	for (int i = 0; i < pieces; i++)
		msp_lj_names_add_range(names, piece[i].start, piece[i].start + piece[i].size);
	msp_lj_names_index(names, 20000);
	for (int i = 0; i < lua.protos; i++) {
		start = now_us();
		ask(names, mem, lua.proto[i].addr, lua.proto[random64() % lua.protos].addr);
		assert_true(now_us() - start < 3000000);
	}
	msp_lj_names_free(names);
}

/* One to eight bytes of each prototype are wrong: in the header, the code, the texts. */
static void test_broken(void **state)
{
	struct msp_memory mem = {read_copy, NULL};

	(void)state;
	for (int round = 0; round < 40; round++) {
		static uint8_t saved[PROTOS_MAX > 4096 ? 4096 : PROTOS_MAX][512];

		for (int i = 0; i < lua.protos && i < 4096; i++) {
			uint8_t *at = local(lua.proto[i].addr);
			size_t size = lua.proto[i].sizept < 512 ? lua.proto[i].sizept : 512;

			if (!at || !local(lua.proto[i].addr + size - 1))
				continue;
			memcpy(saved[i], at, size);
			for (unsigned n = 1 + random64() % 8; n; n--) {
				size_t where = random64() % (round & 1 ? size : 104);

				at[where] = round & 2 ? (uint8_t)random64()
						      : at[where] ^ 1 << random64() % 8;
			}
		}
		ask_all(&mem);
		for (int i = lua.protos < 4096 ? lua.protos : 4096; i-- > 0;) {
			uint8_t *at = local(lua.proto[i].addr);
			size_t size = lua.proto[i].sizept < 512 ? lua.proto[i].sizept : 512;

			if (at && local(lua.proto[i].addr + size - 1))
				memcpy(at, saved[i], size);
		}
	}
}

/* Memory that changes between two reads. */
static void test_changing(void **state)
{
	struct msp_memory mem = {read_copy, NULL};

	(void)state;
	for (changing = 1; changing <= 64; changing *= 2)
		ask_all(&mem);
	changing = 0;
	ask_all(&mem);
}

/* ---- Functions without end, made up ---- */

#define FAKES 300000
#define FAKE_BASE 0x100000000ull
#define FAKE_STEP 0x1000ull
#define FAKE_CHUNK 0x800

/* At each step a small function; at its half the name of its chunk, each another one. */
static int read_fake(void *ctx, uint64_t addr, void *buf, size_t size)
{
	uint64_t base = addr & ~(FAKE_STEP - 1);
	uint64_t n = (base - FAKE_BASE) / FAKE_STEP;
	uint64_t page[FAKE_STEP / 8] = {0};
	uint8_t *p = (uint8_t *)page;

	(void)ctx;
	if (addr < FAKE_BASE || n >= FAKES || size > FAKE_STEP - (addr - base))
		return MSP_E_FAULT;
#define PUT(off, type, value) memcpy(p + (off), &(type){value}, sizeof(type))
	p[9] = MSP_GCT_PROTO;
	PUT(12, uint32_t, 4);
	PUT(32, uint64_t, base + 120);
	PUT(56, uint32_t, 128);
	PUT(64, uint64_t, base + FAKE_CHUNK);
	PUT(72, uint32_t, 7);
	PUT(76, uint32_t, 3);
	PUT(80, uint64_t, base + 120);
	p[FAKE_CHUNK + 9] = MSP_GCT_STR;
	PUT(FAKE_CHUNK + 20, uint32_t, 1000);
	memset(p + FAKE_CHUNK + 24, 'x', 1000);
	sprintf((char *)p + FAKE_CHUNK + 24, "=chunk %lu", (unsigned long)n);
	p[FAKE_CHUNK + 24 + strlen((char *)p + FAKE_CHUNK + 24)] = ' ';
#undef PUT
	memcpy(buf, p + (addr - base), size);
	return 0;
}

static void test_bounded(void **state)
{
	struct msp_memory mem = {read_fake, NULL};
	struct msp_lj_names *names = msp_lj_names_new_layout(&fixed_layout, &mem, 0);
	const struct msp_lj_function *first = NULL, *fn = NULL;
	uint64_t ident = 0;

	(void)state;
	for (int i = 0; i < FAKES; i++) {
		_Alignas(8) uint8_t header[MSP_PROTO_HEADER_MAX];
		uint64_t addr = FAKE_BASE + i * FAKE_STEP;

		assert_int_equal(msp_proto_read_header(&fixed_layout, &mem, addr, header), 0);
		ident = msp_proto_ident(header, &fixed_layout);
		assert_int_equal(msp_lj_names_function(names, addr, ident, 0, 0, &fn), 0);
		if (!first)
			first = fn;
		else if (i % 1000 == 0)
			assert_int_equal(msp_lj_names_line(names, addr, ident, 3), 7);
	}
	assert_string_equal(fn->file, "[too many chunks]");
	/* What was handed out first is still there. */
	assert_int_equal(strncmp(first->file, "chunk 0 xxx", 11), 0);
	assert_string_equal(first->name, "anonymous");
	assert_true(names->entry_count <= 1 << 18);
	assert_true(names->strings.bytes < (65u << 20));
	assert_true(names->line_bytes <= 32u << 20);
	msp_lj_names_free(names);
}

/* The index's map loses nothing at any size below its bound, whatever distance objects have. */
static void test_pairs(void **state)
{
	static const uint64_t strides[] = {8, 64, 104, 4096, 65536 + 8};
	const struct msp_pair *pair;

	(void)state;
	for (size_t s = 0; s < sizeof(strides) / sizeof(*strides); s++) {
		struct msp_pairs pairs = {0};

		for (uint64_t i = 0; i < 130000; i++)
			msp_pairs_add(&pairs, 0x7f0000000000 + i * strides[s], i + 1);
		for (uint64_t i = 0; i < 130000; i++) {
			pair = msp_pairs_find(&pairs, 0x7f0000000000 + i * strides[s]);
			assert_non_null(pair);
			assert_int_equal(pair->value[0], i + 1);
		}
		assert_null(msp_pairs_find(&pairs, 12345));
		for (uint64_t i = 0; i < 1000000;
		     i++) /* more than fit: left out, in bounded memory */
			msp_pairs_add(&pairs, random64(), 1);
		assert_true(pairs.mask < 1 << 18);
		free(pairs.pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_noise),	 cmocka_unit_test(test_broken),
		cmocka_unit_test(test_changing), cmocka_unit_test(test_bounded),
		cmocka_unit_test(test_pairs),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
