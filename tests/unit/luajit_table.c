/* SPDX-License-Identifier: MIT */
/*
 * The table that a LuaJIT with the VM descriptor makes of a trace: here the test makes one, of a trace of a LuaJIT without.
 * It is used as it is, only if it is one of this trace, and not where the snapshots prove something else.
 */
#include "luajit_mutator.h"
#include "luajit_trace_help.h"

#include "moonspy/vm_descriptor.h"

#define ROUNDS 3000
#define TOLD 0x1000ull /* an address where no program has anything */
#define MAX_PIECES 4096

/* What the target seems to have at TOLD. */
struct told {
	struct ljvm_descriptor head;
	struct ljvm_addresses addresses;
	struct ljvm_live live;
	struct ljvm_slots slots;
	struct ljvm_table_list list;
	uint64_t table_at[8];
	struct ljvm_table table;
	uint8_t parts[MAX_PIECES * sizeof(struct ljvm_piece)];
};
#define TOLD_AT(member) (TOLD + offsetof(struct told, member))

struct test {
	struct fixture *f;
	struct told *told;
	struct msp_memory mem;
	struct mutator mutator;	       /* of what is not told */
	uint64_t hidden;	       /* this is not readable: what only snapshots prove */
	struct msp_trace_image *image; /* without the table */
	struct msp_raw_frame base;
	struct ljvm_place place[3]; /* the main chunk calls middle, which calls leaf */
	uint16_t node[3];
};

static int read_told(void *ctx, uint64_t addr, void *buf, size_t size)
{
	const struct test *t = ctx;

	if (addr >= TOLD && addr - TOLD < sizeof(*t->told) &&
	    size <= sizeof(*t->told) - (addr - TOLD)) {
		memcpy(buf, (const char *)t->told + (addr - TOLD), size);
		return 0;
	}
	if (t->hidden && addr == t->hidden)
		return -1;
	return t->mutator.one_in ? mutate((void *)&t->mutator, addr, buf, size)
				 : msp_read(t->f->mem, addr, buf, size);
}

static void set_sum(struct told *told)
{
	const uint32_t *word = (const uint32_t *)&told->table;
	uint32_t sum = 0, words = told->table.size < sizeof(told->table) + sizeof(told->parts)
					  ? told->table.size / 4
					  : 0;

	for (uint32_t i = 0; i < words; i++)
		if (&word[i] != &told->table.sum)
			sum = (sum << 1 | sum >> 31) + word[i];
	told->table.sum = sum;
}

/* A descriptor with one VM, which has one table: of the places, from one piece of the code to the next. */
static void tell(struct test *t, const struct ljvm_piece *piece, uint32_t pieces)
{
	struct told *told = t->told;
	uint64_t mcode = 0;

	memset(told, 0, sizeof(*told));
	memcpy(told->head.magic, LJVM_MAGIC, sizeof(told->head.magic));
	told->head.major = LJVM_MAJOR;
	told->head.pointer_size = 8;
	told->head.addresses =
		(struct ljvm_part){offsetof(struct told, addresses), sizeof(told->addresses)};
	told->addresses.live = (struct ljvm_live *)TOLD_AT(live);
	told->live = (struct ljvm_live){.size = sizeof(told->live),
					.slot_size = sizeof(struct ljvm_slot),
					.slots = TOLD_AT(slots)};
	told->slots.count = LJVM_SLOTS;
	told->slots.slot[3] = (struct ljvm_slot){.g = t->f->g + 8, .serial = 1};
	told->slots.slot[5] =
		(struct ljvm_slot){.g = t->f->g, .serial = 2, .tables = TOLD_AT(list)};
	told->list.count = 8;
	assert_in_range(t->image->number, 1, 7);
	told->table_at[t->image->number] = TOLD_AT(table);
	assert_int_equal(
		msp_read(t->f->mem, t->image->at + (uint64_t)t->f->layout->T_mcode, &mcode, 8), 0);
	told->table = (struct ljvm_table){.magic = LJVM_TABLE_MAGIC,
					  .size = sizeof(told->table) + sizeof(t->place) +
						  pieces * sizeof(*piece),
					  .mcode = mcode,
					  .szmcode = t->image->szmcode,
					  .traceno = t->image->number,
					  .pieces = pieces,
					  .places = 3};
	memcpy(told->parts, t->place, sizeof(t->place));
	memcpy(told->parts + sizeof(t->place), piece, pieces * sizeof(*piece));
	set_sum(told);
}

/* The innermost of the three functions that a node has, as 0, 1, 2. */
static uint32_t depth_of(const struct msp_trace_image *image, uint16_t node)
{
	uint32_t depth = 0;

	while (image->node[node].parent) {
		node = image->node[node].parent;
		depth++;
	}
	return depth;
}

static int begin(void **state)
{
	struct test *t = calloc(1, sizeof(*t));
	void *fixture = NULL;
	int err = set_up(&fixture);

	*state = t;
	if (!t || err)
		return -1;
	t->f = fixture;
	t->told = calloc(1, sizeof(*t->told));
	t->mem = (struct msp_memory){.read = read_told, .ctx = t};
	if (!t->f->layout)
		return 0;
	t->image = find_loop(t->f);
	if (!t->image)
		return -1;
	t->base = base_frame(t->image);
	for (uint16_t i = 1; i < t->image->node_count; i++)
		if (depth_of(t->image, i) == 2)
			t->node[2] = i;
	for (int i = 2; i-- > 0;)
		t->node[i] = t->image->node[t->node[i + 1]].parent;
	for (int i = 0; i < 3; i++)
		t->place[i] = (struct ljvm_place){.pt = t->image->node[t->node[i]].addr,
						  .pos = t->image->node[t->node[i]].pos,
						  .outer = i ? (uint32_t)i - 1 : LJVM_NO_PLACE};
	return 0;
}

static int end(void **state)
{
	struct test *t = *state;
	void *fixture = t->f;

	msp_trace_image_free(t->image);
	free(t->told);
	free(t);
	return tear_down(&fixture);
}

static int frames(struct msp_lj_traces *traces, const struct test *t, uint32_t at,
		  struct msp_raw_frame *out)
{
	struct msp_raw_frame vm = vm_frame(t->image, at);
	bool fresh;

	return msp_lj_traces_frames(traces, &vm, &t->base, out, &fresh);
}

static struct msp_lj_traces *new_traces(const struct test *t, uint64_t descriptor)
{
	struct msp_lj_traces *traces = msp_lj_traces_new(t->f->layout, NULL, &t->mem, t->f->g);

	assert_non_null(traces);
	msp_lj_traces_set_descriptor(traces, descriptor);
	return traces;
}

/* How many frames the snapshots prove at each byte; that there be places where they leave something open is the point. */
static uint32_t sure_at(struct msp_lj_traces *plain, struct test *t, uint32_t at)
{
	struct msp_raw_frame out[MSP_TRACE_DEPTH];
	int n, sure = 0;

	assert_int_equal(
		msp_read(t->f->mem, t->image->at + (uint64_t)t->f->layout->T_mcode, &t->hidden, 8),
		0);
	n = frames(plain, t, at, out);
	t->hidden = 0;
	for (int i = 0; i < n; i++)
		sure += !(out[i].flags & MSP_RAWF_GUESS);
	return (uint32_t)sure;
}

/* A place for each byte: where all three fit what is proved, by turns one of the three. */
static uint32_t make_pieces(struct msp_lj_traces *plain, struct test *t, struct ljvm_piece *piece)
{
	uint32_t sure;

	for (uint32_t at = 0; at < t->image->szmcode; at++) {
		sure = sure_at(plain, t, at);
		piece[at].offset = at;
		piece[at].place = sure > 1 ? sure - 1 : at % 3;
	}
	return t->image->szmcode;
}

/* At each byte the frames are those of the table, with their positions, and all are certain. */
static void test_used(void **state)
{
	struct test *t = *state;
	struct msp_raw_frame out[MSP_TRACE_DEPTH];
	struct msp_lj_traces *plain, *traces;
	struct ljvm_piece piece[MAX_PIECES];
	uint32_t pieces, used[3] = {0};

	if (!t->image)
		skip();
	assert_true(t->image->szmcode < MAX_PIECES / 2);
	plain = new_traces(t, 0);
	pieces = make_pieces(plain, t, piece);
	tell(t, piece, pieces);
	traces = new_traces(t, TOLD);
	for (uint32_t at = 0; at < pieces; at++) {
		uint32_t depth = piece[at].place;
		int n = frames(traces, t, at, out);

		assert_int_equal(n, depth + 1);
		for (uint32_t i = 0; i <= depth; i++) {
			assert_int_equal(out[depth - i].addr, t->place[i].pt);
			assert_int_equal(out[depth - i].pos, t->place[i].pos);
			assert_false(out[depth - i].flags & MSP_RAWF_GUESS);
			assert_int_equal(!(out[depth - i].flags & MSP_RAWF_INLINED), i == 0);
		}
		used[depth]++;
	}
	print_message("%u, %u, %u bytes of code with one, two, three functions\n", used[0], used[1],
		      used[2]);
	assert_true(used[0] && used[1] && used[2]);
	msp_lj_traces_free(plain);
	msp_lj_traces_free(traces);
}

/* Where the snapshots prove three functions, a table that says that the outermost runs is not believed. */
static void test_contradiction(void **state)
{
	struct test *t = *state;
	struct ljvm_piece piece = {0, 0};
	struct msp_raw_frame out[MSP_TRACE_DEPTH];
	struct msp_lj_traces *plain, *traces;
	uint32_t refused = 0;

	if (!t->image)
		skip();
	tell(t, &piece, 1);
	plain = new_traces(t, 0);
	traces = new_traces(t, TOLD);
	for (uint32_t at = 0; at < t->image->szmcode; at++) {
		if (sure_at(plain, t, at) < 3)
			continue;
		assert_int_equal(frames(traces, t, at, out), 3);
		refused++;
	}
	assert_true(refused > 0);
	msp_lj_traces_free(plain);
	msp_lj_traces_free(traces);
}

static bool is_used(const struct test *t)
{
	struct msp_raw_frame vm = vm_frame(t->image, 0);
	struct msp_trace_image *image;
	bool exact;

	assert_int_equal(msp_trace_image_read(t->f->layout, &t->mem, t->f->g, t->image->at, &vm,
					      NULL, TOLD, &image),
			 0);
	exact = image->exact;
	msp_trace_image_free(image);
	return exact;
}

/* One word of it is another: it is none of this trace, or none at all. */
static void test_refused(void **state)
{
	static const struct {
		const char *what;
		size_t offset;
		uint32_t value;
		bool keep_sum;
	} wrong[] = {
#define WORD(member, value) {#member, offsetof(struct told, member), value, false}
		WORD(head.magic, 0),
		WORD(head.major, LJVM_MAJOR + 1),
		WORD(head.pointer_size, 4),
		WORD(head.addresses.size, offsetof(struct ljvm_addresses, live)),
		WORD(head.addresses.offset, 0x10000000),
		WORD(addresses.live, 0),
		WORD(live.size, sizeof(struct ljvm_live) - 8),
		WORD(live.slot_size, sizeof(struct ljvm_slot) - 8),
		WORD(live.slot_size, 1 << 20),
		WORD(live.slots, 0),
		WORD(slots.count, 5),
		WORD(slots.count, 1 << 30),
		WORD(slots.slot[5].g, 0),
		WORD(slots.slot[5].tables, 0),
		WORD(slots.slot[5].tables, 8),
		WORD(list.count, 1),
		WORD(table.magic, 0),
		WORD(table.mcode, 0),
		WORD(table.szmcode, 1),
		WORD(table.traceno, 0),
		WORD(table.size, sizeof(struct ljvm_table)),
		WORD(table.size, 1 << 30),
		WORD(table.places, 0),
		WORD(table.places, 1 << 28),
		WORD(table.pieces, 0),
		WORD(table.pieces, 1 << 29),
		{"sum", offsetof(struct told, table.sum), 1, true},
		{"outer", offsetof(struct told, parts) + offsetof(struct ljvm_place, outer), 0,
		 false},
		{"outer", offsetof(struct told, parts) + offsetof(struct ljvm_place, outer), 2,
		 false},
		{"offset", offsetof(struct told, parts) + 3 * sizeof(struct ljvm_place), 1, false},
		{"place", offsetof(struct told, parts) + 3 * sizeof(struct ljvm_place) + 4, 3,
		 false},
		{"order", offsetof(struct told, parts) + 3 * sizeof(struct ljvm_place) + 8, 0,
		 false},
		{"behind", offsetof(struct told, parts) + 3 * sizeof(struct ljvm_place) + 8,
		 1 << 20, false},
	};
	struct test *t = *state;
	struct ljvm_piece piece[] = {{0, 0}, {8, 1}};

	if (!t->image)
		skip();
	tell(t, piece, 2);
	assert_true(is_used(t));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		tell(t, piece, 2);
		memcpy((char *)t->told + wrong[i].offset, &wrong[i].value, sizeof(wrong[i].value));
		if (!wrong[i].keep_sum)
			set_sum(t->told);
		if (is_used(t))
			fail_msg("used though %s is %u", wrong[i].what, wrong[i].value);
	}
}

/* The list of VMs leads back to itself. */
static void test_endless(void **state)
{
	struct test *t = *state;
	struct ljvm_piece piece = {0, 0};

	if (!t->image)
		skip();
	tell(t, &piece, 1);
	t->told->slots.next = TOLD_AT(slots);
	t->told->slots.slot[5].g = t->f->g + 16;
	assert_false(is_used(t));
}

/* Words of all of it are garbage, and of what it names too; its sum is right. */
static void test_hostile(void **state)
{
	struct test *t = *state;
	struct ljvm_piece piece[MAX_PIECES];
	struct msp_lj_traces *plain;
	struct msp_raw_frame vm;
	uint32_t pieces, read = 0, exact = 0;
	uint64_t seed = 4711;

	if (!t->image)
		skip();
	plain = new_traces(t, 0);
	pieces = make_pieces(plain, t, piece);
	msp_lj_traces_free(plain);
	vm = vm_frame(t->image, 0);
	for (int i = 0; i < ROUNDS; i++) {
		struct msp_trace_image *image;
		struct msp_raw_frame out[MSP_TRACE_DEPTH];
		struct msp_lj_traces *traces;
		uint32_t *word = (uint32_t *)t->told;
		size_t words;

		tell(t, piece, pieces);
		/* most of it is garbage in some rounds, a word in most */
		words = (offsetof(struct told, parts) + sizeof(t->place) + 64 * (size_t)(i % 4)) /
			4;
		for (int k = next_random(&seed) % (i % 16 ? 3 : 30); k >= 0; k--)
			word[next_random(&seed) % words] =
				i % 3 ? next_random(&seed) % 64 : (uint32_t)next_random(&seed);
		set_sum(t->told);
		t->mutator = (struct mutator){t->f->mem, 31 + i, i % 2 ? 200 + i % 3000 : 0};
		traces = new_traces(t, TOLD);
		for (uint32_t at = 0; at < t->image->szmcode; at += 17)
			frames(traces, t, at, out);
		msp_lj_traces_free(traces);
		if (msp_trace_image_read(t->f->layout, &t->mem, t->f->g, t->image->at, &vm, NULL,
					 TOLD, &image))
			continue;
		read++;
		exact += image->exact;
		for (uint32_t k = 0; k < image->proofs; k++)
			assert_true(image->proof[k].node < image->node_count);
		for (uint32_t k = 1; k < image->node_count; k++)
			assert_true(image->node[k].parent < k);
		msp_trace_image_free(image);
	}
	print_message("%u of %d were read, %u with their table\n", read, ROUNDS, exact);
	assert_true(read > ROUNDS / 2 && exact > ROUNDS / 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_used, begin, end),
		cmocka_unit_test_setup_teardown(test_contradiction, begin, end),
		cmocka_unit_test_setup_teardown(test_refused, begin, end),
		cmocka_unit_test_setup_teardown(test_endless, begin, end),
		cmocka_unit_test_setup_teardown(test_hostile, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
