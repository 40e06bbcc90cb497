/* SPDX-License-Identifier: MIT */
/*
 * usage: test-traces LUAJIT SAMPLES PROGRAM [ARGS...]
 *
 * Runs a Lua program on a LuaJIT that records what its traces are made of
 * (truth_record.c), stops it at random moments, and compares the frames inside
 * of compiled code with that record. Prints one line of figures; 1 if a frame
 * that is said to be certain is wrong. LATE=N in the environment: the frames
 * are asked for only N samples later, when traces may have been flushed.
 * SHOW=1: prints each sample of which the innermost place was not right.
 * EMULATOR, ROOT: of another architecture (truth_target.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "symbols/symbols.h"
#include "target/snapshot.h"
#include "truth_target.h"

#define MAX_NUMBER 65536
#define MAX_LATE 64
#define TRUTH_FRAMES 64

struct place {
	uint64_t pt;
	uint32_t pos;
};

struct range {
	uint32_t start, end;
	uint32_t count;
	struct place place[TRUTH_FRAMES]; /* innermost first */
};

/* What was recorded of the trace that has a number now. */
struct truth {
	uint64_t mcode;
	uint32_t size;
	struct range *range;
	size_t count;
};

static struct {
	bool show;
	char log[64];
	FILE *in;
	struct truth truth[MAX_NUMBER];
	struct msp_images *images;
	struct msp_space *space;
	struct msp_walker *walker;
	struct msp_symbolizer *symbols;
} t;

static struct {
	long samples, unknown, no_truth, certain_wrong, complete, function, line, stack;
} count;

static void die(const char *what, int err)
{
	fprintf(stderr, "test-traces: %s: %s\n", what, err ? msp_strerror(err) : strerror(errno));
	truth_target_end();
	unlink(t.log);
	exit(2);
}

/* ---- What the program says ---- */

static void parse_range(struct truth *truth, char *line)
{
	struct range *r;
	char *p = line + strlen("range "), *end;

	truth->range = realloc(truth->range, (truth->count + 1) * sizeof(*truth->range));
	if (!truth->range)
		die("memory", MSP_E_NOMEM);
	r = &truth->range[truth->count++];
	r->start = strtoul(p, &p, 10);
	r->end = strtoul(p, &p, 10);
	for (r->count = 0; r->count < TRUTH_FRAMES; r->count++) {
		r->place[r->count].pt = strtoull(p, &end, 16);
		if (end == p || *end != ':')
			break;
		r->place[r->count].pos = strtoul(end + 1, &p, 10);
	}
}

/* All that was written since the last time: whole traces, as the program stands still. */
static void read_truth(void)
{
	static char *line;
	static size_t room;
	struct truth *now = NULL;
	unsigned long long mcode;
	uint32_t number, size;

	clearerr(t.in);
	while (getline(&line, &room, t.in) > 0) {
		if (sscanf(line, "trace %u %llx %u", &number, &mcode, &size) == 3 &&
		    number < MAX_NUMBER) {
			now = &t.truth[number];
			now->mcode = mcode;
			now->size = size;
			now->count = 0;
		} else if (now && !strncmp(line, "range ", 6)) {
			parse_range(now, line);
		}
	}
}

static const struct range *truth_at(uint32_t number, uint32_t offset)
{
	const struct truth *truth = &t.truth[number];

	for (size_t i = 0; i < truth->count; i++)
		if (offset >= truth->range[i].start && offset < truth->range[i].end &&
		    truth->range[i].count)
			return &truth->range[i];
	return NULL;
}

/* ---- One moment ---- */

/* The Lua frames of the trace that was running, leaf first; vm: its VM frame. */
static size_t lua_frames(const struct msp_raw_frame *raw, size_t n, size_t vm,
			 struct msp_raw_frame *out)
{
	size_t found = 0;

	for (size_t i = vm + 1; i < n && raw[i].flags & MSP_RAWF_JIT; i++)
		if (raw[i].kind == MSP_RAW_LUA)
			out[found++] = raw[i];
	return found;
}

static uint32_t line_of(const struct msp_vm *vm, const struct msp_raw_frame *f, uint32_t pos)
{
	const struct msp_lj_function *fn;
	struct msp_lj_names *names = msp_space_vm_names(t.space, vm);

	msp_lj_names_function(names, f->addr, f->ident, 0, 0, &fn);
	return msp_lj_names_line(names, f->addr, f->ident, pos);
}

static void print_wrong(const struct msp_raw_frame *vm, const struct range *r,
			const struct msp_raw_frame *f, size_t n)
{
	fprintf(stderr, "trace %u at %u of %u:\n   is ", vm->trace, vm->tofs,
		t.truth[vm->trace].size);
	for (uint32_t i = 0; i < r->count; i++)
		fprintf(stderr, " %llx:%u", (unsigned long long)r->place[i].pt, r->place[i].pos);
	fprintf(stderr, "\n   not");
	for (size_t i = 0; i < n; i++)
		fprintf(stderr, " %s%llx:%u", f[i].flags & MSP_RAWF_GUESS ? "~" : "",
			(unsigned long long)f[i].addr, f[i].pos);
	fprintf(stderr, "\n");
}

/*
 * In its last instructions a trace that goes on in another one has moved its
 * base there: what was inlined is then on the stack, below the base.
 */
static bool has_moved(const struct msp_raw_frame *vm, const struct range *r,
		      const struct msp_raw_frame *f, size_t n)
{
	return n == 1 && r->count > 1 && vm->tofs + 12 >= t.truth[vm->trace].size &&
	       f->addr == r->place[0].pt;
}

/* f[0..n) leaf first against the truth. */
static void compare(const struct msp_vm *vm, const struct msp_raw_frame *frame,
		    const struct range *r, const struct msp_raw_frame *f, size_t n)
{
	size_t certain = 0, right = 0, all = n < r->count ? n : r->count;
	bool wrong = false, sure;

	for (size_t i = 0; i < n; i++)
		certain += !(f[n - 1 - i].flags & MSP_RAWF_GUESS);
	for (size_t i = 0; i < all; i++, right++) {
		const struct place *p = &r->place[r->count - 1 - i];
		const struct msp_raw_frame *mine = &f[n - 1 - i];

		if (p->pt != mine->addr)
			break;
		/* where it calls the next certain one */
		sure = i + 1 < certain;
		if (sure && p->pos != mine->pos)
			break;
	}
	wrong = certain > right;
	count.certain_wrong += wrong;
	if (wrong || (t.show && (f[0].addr != r->place[0].pt || f[0].pos != r->place[0].pos)))
		print_wrong(frame, r, f, n);
	count.complete += certain == r->count && certain == n;
	count.stack += right == n && n == r->count;
	if (f[0].addr != r->place[0].pt)
		return;
	count.function++;
	count.line += line_of(vm, f, f[0].pos) == line_of(vm, f, r->place[0].pos);
}

/* A moment: what the walker found, and what was true then. */
struct moment {
	struct msp_raw_frame raw[MSP_MAX_FRAMES];
	size_t n;
	struct range truth; /* count 0: there is none */
};

/* Index of the VM frame of a trace that was running; n: none was. */
static size_t trace_of(const struct msp_raw_frame *raw, size_t n)
{
	size_t at = 0;

	while (at < n && raw[at].kind != MSP_RAW_VM && raw[at].kind != MSP_RAW_STATE)
		at++;
	if (at < n && raw[at].kind == MSP_RAW_STATE) {
		if (raw[at].pos != MSP_STATE_GC)
			return n; /* on its way out of a trace, or making one */
		while (at < n && raw[at].kind != MSP_RAW_VM)
			at++;
	}
	if (at + 1 >= n || !(raw[at].flags & MSP_RAWF_JIT) || !(raw[at + 1].flags & MSP_RAWF_JIT))
		return n;
	return at;
}

/* The program stands still. False: it is not in a trace. */
static bool look(struct moment *m)
{
	struct msp_registers regs;
	struct msp_stack stack;
	const struct range *r;
	size_t at;

	if (!truth_target_registers(&regs))
		return false;
	msp_walker_walk(t.walker, NULL, &regs, &stack);
	m->n = stack.count < MSP_MAX_FRAMES ? stack.count : MSP_MAX_FRAMES;
	memcpy(m->raw, stack.frames, m->n * sizeof(*m->raw));
	at = trace_of(m->raw, m->n);
	if (at == m->n)
		return false;
	read_truth();
	r = m->raw[at].trace ? truth_at(m->raw[at].trace, m->raw[at].tofs) : NULL;
	m->truth.count = 0;
	if (r)
		m->truth = *r;
	return true;
}

/* Names what was inlined, now or long after, and compares it. */
static void judge(const struct moment *m)
{
	static struct msp_raw_frame raw[2 * MSP_MAX_FRAMES], lua[MSP_MAX_FRAMES];
	struct msp_inlined info;
	const struct msp_vm *vm;
	size_t n, at, frames;

	n = msp_symbolizer_inline(t.symbols, m->raw, m->n, raw, NULL, 2 * MSP_MAX_FRAMES, &info);
	at = trace_of(raw, n);
	count.samples++;
	if (!raw[at].trace || !raw[at].ident || info.gone) {
		count.unknown++;
		return;
	}
	vm = msp_space_vm_at(t.space, raw[at].image, raw[at].addr);
	frames = lua_frames(raw, n, at, lua);
	if (!m->truth.count || !vm || !frames)
		count.no_truth++;
	else if (has_moved(&raw[at], &m->truth, lua, frames))
		count.samples--;
	else
		compare(vm, &raw[at], &m->truth, lua, frames);
}

/* ---- All ---- */

/* Until it has a VM that can be proved. */
static bool find_vm(void)
{
	const struct msp_vm *vm;
	size_t n;

	for (int i = 0; i < 10000; i++) {
		if (!truth_target_run())
			return false;
		if (i % 20 || msp_space_refresh(t.space) < 0)
			continue;
		msp_space_find_vms(t.space);
		vm = msp_space_vms(t.space, &n);
		for (size_t k = 0; k < n; k++)
			if (vm[k].proof.heap)
				return true;
	}
	return false;
}

static void open_all(void)
{
	struct msp_images_options options = {0};
	int err = msp_images_new(&options, &t.images);

	if (!err)
		err = truth_target_space(t.images, &t.space);
	if (!err && !find_vm())
		err = MSP_E_NOT_PROVED;
	if (!err)
		err = msp_walker_new(t.space, &t.walker);
	if (!err)
		err = msp_symbolizer_new(t.images, t.space, NULL, &t.symbols);
	if (err < 0)
		die("cannot look into the program", err);
}

static double percent(long part, long all)
{
	return all ? 100.0 * part / all : 0;
}

int main(int argc, char *argv[])
{
	static struct moment moment[MAX_LATE];
	long wanted, judged, late, seen = 0;
	char *command[32] = {argv[1]};

	if (argc < 4 || argc > 30) {
		fprintf(stderr, "usage: test-traces LUAJIT SAMPLES PROGRAM [ARGS...]\n");
		return 2;
	}
	wanted = atol(argv[2]);
	t.show = getenv("SHOW") != NULL;
	late = getenv("LATE") ? atol(getenv("LATE")) : 1;
	if (late < 1 || late > MAX_LATE)
		late = 1;
	memcpy(command + 1, argv + 3, (argc - 3) * sizeof(*argv));
	snprintf(t.log, sizeof(t.log), "/tmp/moonspy-truth-%d", (int)getpid());
	t.in = fopen(t.log, "w+e");
	if (!t.in)
		die(t.log, 0);
	setenv("MOONSPY_TRUTH", t.log, 1);
	if (!truth_target_start(command))
		die(argv[1], 0);
	open_all();
	for (long i = 0; count.samples < wanted && i < 20 * wanted && truth_target_run(); i++)
		if (look(&moment[seen % MAX_LATE]) && ++seen >= late)
			judge(&moment[(seen - late) % MAX_LATE]);
	truth_target_end();
	unlink(t.log);
	judged = count.samples - count.unknown - count.no_truth;
	printf("%6ld %6ld %7ld %7.1f %7.1f %7.1f %7.1f %7.1f\n", count.samples, judged,
	       count.certain_wrong, percent(count.unknown, count.samples),
	       percent(count.complete, judged), percent(count.stack, judged),
	       percent(count.function, judged), percent(count.line, judged));
	return count.certain_wrong ? 1 : judged ? 0 : 3;
}
