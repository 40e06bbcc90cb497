/* SPDX-License-Identifier: MIT */
/*
 * Tables of traces: while a trace is recorded, each IR instruction is noted with the bytecode it comes from, and while it
 * is assembled, the code that it becomes. All memory is taken from the C library: a program that counts its Lua memory
 * sees nothing of it. Nothing is done while tables are off.
 */
#ifndef LJVM_NO_LIVE
static void ljvm_tables_asked(void)
{
#ifndef LJVM_NO_TABLES
	const char *asked = getenv("LUAJIT_TRACE_TABLES");

	if (asked && asked[0] == '1' && !asked[1])
		LJVM_SET(&ljvm_live.tables_on, 1);
#endif
}
#endif

#ifdef LJVM_NO_TABLES
#define LJVM_PLACES NULL
#define LJVM_SET_TABLES NULL
#ifndef LJVM_NO_LIVE
static void ljvm_tables_free(struct ljvm_slot *slot)
{
	UNUSED(slot);
}
#endif
#else

#define LJVM_DEPTH 128 /* frames of a trace; it has fewer slots than twice that */
#define LJVM_MOST_PLACES 0x100000

struct ljvm_code {
	MCode *start;
	uint32_t place;
};

/* What is noted of the trace that a VM is making. */
struct ljvm_work {
	int active;
	uint32_t first, now; /* where recording began; place of what is emitted */
	uint32_t place_count, place_room;
	struct ljvm_place *place;
	uint32_t depth;
	uint32_t chain[LJVM_DEPTH]; /* the places of the last instruction, outermost first */
	uint32_t code_count, code_room;
	struct ljvm_code *code; /* from the end of the code on */
	uint32_t end;           /* of the IR references that were emitted; all others have no place */
	uint32_t of[0x10000];   /* by IR reference */
};

static struct ljvm_work *ljvm_work_of(jit_State *J)
{
	struct ljvm_slot *slot = ljvm_slot_of(J2G(J));
	struct ljvm_work *work = slot && slot->unused > LJVM_CLAIMED ? (struct ljvm_work *)(uintptr_t)slot->unused : NULL;

	return work && work->active ? work : NULL;
}

static void ljvm_give_up(struct ljvm_work *work)
{
	if (work)
		work->active = 0;
	__atomic_add_fetch(&ljvm_live.tables_missed, 1, __ATOMIC_ACQ_REL);
}

/* Room for one more in a growing array of things of that size; 0: there is none. */
static int ljvm_grow(void **array, uint32_t count, uint32_t *room, size_t size)
{
	uint32_t more = *room ? 2 * *room : 256;
	void *grown;

	if (count < *room)
		return 1;
	grown = count < LJVM_MOST_PLACES ? realloc(*array, more * size) : NULL;
	if (!grown)
		return 0;
	*array = grown;
	*room = more;
	return 1;
}

void ljvm_table_begin(jit_State *J)
{
	struct ljvm_slot *slot = ljvm_slot_of(J2G(J));
	struct ljvm_work *work;

	if (!slot)
		return;
	if (slot->unused == LJVM_CLAIMED) {
		work = (struct ljvm_work *)calloc(1, sizeof(*work));
		if (!work) {
			ljvm_give_up(NULL);
			return;
		}
		memset(work->of, 0xff, sizeof(work->of));
		work->end = REF_BIAS;
		slot->unused = (uint64_t)(uintptr_t)work;
	}
	work = (struct ljvm_work *)(uintptr_t)slot->unused;
	work->active = 1;
	work->first = work->now = LJVM_NO_PLACE;
	work->place_count = work->code_count = work->depth = 0;
	memset(&work->of[REF_BIAS], 0xff, (work->end - REF_BIAS) * sizeof(work->of[0]));
	work->end = REF_BIAS;
}

/* From now on, what is emitted comes from there. Frames that are as before keep their places. */
static void ljvm_place_at(struct ljvm_work *work, uint32_t depth, GCproto *pt, BCPos pos)
{
	uint32_t outer = depth ? work->chain[depth - 1] : LJVM_NO_PLACE;
	uint64_t address = (uint64_t)(uintptr_t)pt;
	struct ljvm_place *place;

	if (depth < work->depth) {
		place = &work->place[work->chain[depth]];
		if (place->pt == address && place->pos == pos && place->outer == outer)
			return;
	}
	if (!ljvm_grow((void **)&work->place, work->place_count, &work->place_room, sizeof(*place))) {
		ljvm_give_up(work);
		return;
	}
	place = &work->place[work->place_count];
	place->pt = address;
	place->pos = pos;
	place->outer = outer;
	work->chain[depth] = work->place_count++;
	work->depth = depth + 1;
}

/* The instruction at J->pc is about to be recorded: its frames, up to where the trace began. */
void ljvm_table_at(jit_State *J)
{
	struct ljvm_work *work = ljvm_work_of(J);
	cTValue *frame = J->L->base - 1, *lim = J->L->base - J->baseslot + LJ_FR2;
	const BCIns *pc = J->pc;
	struct {
		GCproto *pt;
		BCPos pos;
	} found[LJVM_DEPTH];
	uint32_t n = 0, i;

	if (!work)
		return;
	for (;;) {
		GCfunc *fn = frame_func(frame);

		if (pc && isluafunc(fn)) {
			if (n == LJVM_DEPTH) {
				ljvm_give_up(work);
				return;
			}
			found[n].pt = funcproto(fn);
			found[n++].pos = proto_bcpos(funcproto(fn), pc);
		}
		if (frame <= lim)
			break;
		if (frame_islua(frame)) {
			pc = frame_pc(frame) - 1;
			frame = frame_prevl(frame);
		} else {
			pc = frame_iscont(frame) ? frame_contpc(frame) - 1 : NULL;
			frame = frame_prevd(frame);
		}
	}
	for (i = 0; i < n && work->active; i++)
		ljvm_place_at(work, i, found[n - 1 - i].pt, found[n - 1 - i].pos);
	work->depth = n;
	work->now = n ? work->chain[n - 1] : LJVM_NO_PLACE;
	if (work->first == LJVM_NO_PLACE)
		work->first = work->now;
}

/* The trace returns below where it began: its caller is the outermost frame now. */
void ljvm_table_returned(jit_State *J, GCproto *pt, const BCIns *pc)
{
	struct ljvm_work *work = ljvm_work_of(J);

	if (!work)
		return;
	work->depth = 0;
	ljvm_place_at(work, 0, pt, proto_bcpos(pt, pc) - 1);
	work->now = work->chain[0];
}

void ljvm_table_emit(jit_State *J, IRRef ref)
{
	struct ljvm_work *work = ljvm_work_of(J);

	if (!work)
		return;
	work->of[ref & 0xffff] = work->now;
	if (ref >= work->end && ref < 0x10000)
		work->end = ref + 1;
}

/* What is emitted now is a copy of that instruction: loops are unrolled. */
void ljvm_table_like(jit_State *J, IRRef ref)
{
	struct ljvm_work *work = ljvm_work_of(J);

	if (work)
		work->now = work->of[ref & 0xffff];
}

static void ljvm_add_code(struct ljvm_work *work, MCode *start, uint32_t place)
{
	if (!ljvm_grow((void **)&work->code, work->code_count, &work->code_room, sizeof(*work->code))) {
		ljvm_give_up(work);
		return;
	}
	work->code[work->code_count].start = start;
	work->code[work->code_count++].place = place;
}

/* Assembling begins, perhaps anew: backwards. What is there is the way to where recording ended. */
void ljvm_table_assemble(jit_State *J, void *start)
{
	struct ljvm_work *work = ljvm_work_of(J);

	if (!work)
		return;
	work->code_count = 0;
	ljvm_add_code(work, (MCode *)start, work->depth ? work->chain[work->depth - 1] : LJVM_NO_PLACE);
}

/* All code from start on, to where the last call said, is that instruction's. */
void ljvm_table_code(jit_State *J, IRRef ref, void *start)
{
	struct ljvm_work *work = ljvm_work_of(J);

	if (work && work->code_count && work->code[work->code_count - 1].start != start)
		ljvm_add_code(work, (MCode *)start, work->of[ref & 0xffff]);
}

/* ---- Done: the table is made ---- */

static uint32_t ljvm_add_sum(uint32_t sum, uint32_t word)
{
	return (sum << 1 | sum >> 31) + word;
}

static uint32_t ljvm_sum(const struct ljvm_table *table)
{
	const uint32_t *word = (const uint32_t *)table;
	uint32_t sum = 0, i;

	for (i = 0; i < table->size / 4; i++)
		if (i != offsetof(struct ljvm_table, sum) / 4)
			sum = ljvm_add_sum(sum, word[i]);
	return sum;
}

/* New numbers of the places that code comes from, and of those around them. The number of all; used: by old number. */
static uint32_t ljvm_number_places(const struct ljvm_work *work, uint32_t *used)
{
	uint32_t i, n = 0;

	memset(used, 0, work->place_count * sizeof(*used));
	if (work->first != LJVM_NO_PLACE)
		used[work->first] = 1;
	for (i = 0; i < work->code_count; i++)
		if (work->code[i].place != LJVM_NO_PLACE)
			used[work->code[i].place] = 1;
	/* Outer ones are older. */
	for (i = work->place_count; i-- > 0;)
		if (used[i] && work->place[i].outer != LJVM_NO_PLACE)
			used[work->place[i].outer] = 1;
	for (i = 0; i < work->place_count; i++)
		used[i] = used[i] ? n++ : LJVM_NO_PLACE;
	return n;
}

static uint32_t ljvm_renumber(const uint32_t *used, uint32_t place)
{
	return place == LJVM_NO_PLACE ? place : used[place];
}

/* One more piece, if it differs from the last one. The number of all. */
static uint32_t ljvm_put_piece(struct ljvm_piece *piece, uint32_t n, uint32_t offset, uint32_t place)
{
	if (n && piece[n - 1].offset == offset)
		n--;
	if (n && piece[n - 1].place == place)
		return n;
	piece[n].offset = offset;
	piece[n].place = place;
	return n + 1;
}

/*
 * What is emitted before the first instruction is recorded, and the code before it, are on the way to where recording
 * began. If no instruction became code, all of it is on the way to where recording ended.
 */
static uint32_t ljvm_put_pieces(const struct ljvm_work *work, const uint32_t *used, const GCtrace *T,
				struct ljvm_piece *piece)
{
	uint32_t first = ljvm_renumber(used, work->code_count > 1 ? work->first : work->code[0].place);
	uint32_t i, n = ljvm_put_piece(piece, 0, 0, first), place;

	for (i = work->code_count; i-- > 0;) {
		ptrdiff_t offset = (char *)work->code[i].start - (char *)T->mcode;

		if (offset < 0 || offset >= (ptrdiff_t)T->szmcode)
			continue;
		place = work->code[i].place;
		n = ljvm_put_piece(piece, n, (uint32_t)offset, place == LJVM_NO_PLACE ? first : used[place]);
	}
	return n;
}

static struct ljvm_table *ljvm_make_table(const struct ljvm_work *work, const GCtrace *T)
{
	uint32_t *used = (uint32_t *)malloc((work->place_count + 1) * sizeof(*used));
	uint32_t places = used ? ljvm_number_places(work, used) : 0, i;
	size_t room = sizeof(struct ljvm_table) + places * sizeof(struct ljvm_place) +
		      (work->code_count + 1) * sizeof(struct ljvm_piece);
	struct ljvm_table *table = used ? (struct ljvm_table *)calloc(1, room) : NULL, *fitting;

	if (table) {
		struct ljvm_place *place = (struct ljvm_place *)(table + 1);

		for (i = 0; i < work->place_count; i++)
			if (used[i] != LJVM_NO_PLACE) {
				place[used[i]] = work->place[i];
				place[used[i]].outer = ljvm_renumber(used, work->place[i].outer);
			}
		table->pieces = ljvm_put_pieces(work, used, T, (struct ljvm_piece *)(place + places));
		table->places = places;
		table->size = (uint32_t)(room - (work->code_count + 1 - table->pieces) * sizeof(struct ljvm_piece));
		table->mcode = (uint64_t)(uintptr_t)T->mcode;
		table->szmcode = T->szmcode;
		table->traceno = T->traceno;
		table->magic = LJVM_TABLE_MAGIC;
		table->sum = ljvm_sum(table);
		fitting = (struct ljvm_table *)realloc(table, table->size);
		table = fitting ? fitting : table;
	}
	free(used);
	return table;
}

/* Replaces the table of a trace number; NULL: there is none. */
static int ljvm_put_table(struct ljvm_slot *slot, uint32_t number, struct ljvm_table *table)
{
	struct ljvm_table_list *list = (struct ljvm_table_list *)(uintptr_t)slot->tables, *old = list;
	struct ljvm_table *gone;

	if (!list || number >= list->count) {
		uint32_t count = list ? 2 * list->count : 64;

		if (!table)
			return 1;
		while (count <= number)
			count *= 2;
		list = (struct ljvm_table_list *)calloc(1, sizeof(*list) + count * sizeof(list->table[0]));
		if (!list)
			return 0;
		if (old)
			memcpy(list->table, old->table, old->count * sizeof(old->table[0]));
		list->count = count;
		LJVM_SET(&slot->tables, (uint64_t)(uintptr_t)list);
		free(old);
	}
	gone = (struct ljvm_table *)(uintptr_t)list->table[number];
	LJVM_SET(&list->table[number], (uint64_t)(uintptr_t)table);
	if (table)
		__atomic_add_fetch(&ljvm_live.table_bytes, table->size, __ATOMIC_ACQ_REL);
	if (gone) {
		__atomic_sub_fetch(&ljvm_live.table_bytes, gone->size, __ATOMIC_ACQ_REL);
		LJVM_SET(&gone->magic, 0);
		free(gone);
	}
	return 1;
}

/* A trace is done. Also called with tables off, to forget what had its number. */
void ljvm_table_done(jit_State *J, GCtrace *T)
{
	struct ljvm_work *work = ljvm_work_of(J);
	struct ljvm_slot *slot = ljvm_slot_of(J2G(J));
	struct ljvm_table *table = work && work->code_count ? ljvm_make_table(work, T) : NULL;

	if (work)
		work->active = 0;
	if (slot && !ljvm_put_table(slot, T->traceno, table)) {
		free(table);
		table = NULL;
	}
	if (work && !table)
		ljvm_give_up(NULL);
}

/* All traces are gone. */
static void ljvm_tables_forget(struct ljvm_slot *slot)
{
	struct ljvm_table_list *list = (struct ljvm_table_list *)(uintptr_t)slot->tables;
	uint32_t i;

	for (i = 0; list && i < list->count; i++)
		ljvm_put_table(slot, i, NULL);
	LJVM_SET(&slot->tables, 0);
	free(list);
}

void ljvm_table_flush(jit_State *J)
{
	struct ljvm_slot *slot = ljvm_slot_of(J2G(J));

	if (slot)
		ljvm_tables_forget(slot);
}

static void ljvm_tables_free(struct ljvm_slot *slot)
{
	struct ljvm_work *work;

	ljvm_tables_forget(slot);
	if (slot->unused <= LJVM_CLAIMED)
		return;
	work = (struct ljvm_work *)(uintptr_t)slot->unused;
	free(work->place);
	free(work->code);
	free(work);
	slot->unused = LJVM_CLAIMED;
}

#ifndef LJVM_NO_HELPERS
static int ljvm_set_tables(int on)
{
	return (int)__atomic_exchange_n(&ljvm_live.tables_on, (uint32_t)(on != 0), __ATOMIC_ACQ_REL);
}
#endif

#define LJVM_SET_TABLES ljvm_set_tables
#define LJVM_PLACES ljvm_trace_places
#endif
