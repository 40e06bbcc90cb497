/* SPDX-License-Identifier: MIT */
/*
 * Test-only: what a LuaJIT built for tests/traces records about its traces.
 * Included at the end of lj_trace.c by apply.py. For each IR instruction it
 * keeps the bytecode position that was being recorded, with the frames around
 * it, and the code that the instruction became. When a trace is done, one
 * write to the file named by MOONSPY_TRUTH says all of it:
 *
 *	trace NUMBER MCODE SIZE
 *	range OFFSET END PROTO:POS PROTO:POS ...    innermost first
 *	done
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRUTH_FRAMES 64

struct truth_origin {
	unsigned int n;
	struct {
		GCproto *pt;
		unsigned int pos;
	} f[TRUTH_FRAMES];
};

static struct truth_origin *truth_origin; /* by number; 0: before the first instruction */
static unsigned int truth_count, truth_room, truth_now;
static unsigned int truth_of[0x10000]; /* IR reference to origin */
static struct {
	MCode *start, *end;
	unsigned int ref;
} truth_code_of[0x10000];
static unsigned int truth_codes;
static int truth_fd = -2;

static int truth_on(void)
{
	const char *path;

	if (truth_fd == -2) {
		path = getenv("MOONSPY_TRUTH");
		truth_fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
	}
	return truth_fd >= 0;
}

static struct truth_origin *truth_new(void)
{
	if (truth_count == truth_room) {
		truth_room = truth_room ? 2 * truth_room : 1024;
		truth_origin = realloc(truth_origin, truth_room * sizeof(*truth_origin));
		if (!truth_origin)
			abort();
	}
	truth_origin[truth_count].n = 0;
	return &truth_origin[truth_count++];
}

/* A recording begins. */
void msp_truth_begin(void)
{
	truth_count = 0;
	truth_now = 0;
	truth_new();
	memset(truth_of, 0, sizeof(truth_of));
}

/* The instruction at J->pc is about to be recorded. */
void msp_truth_at(jit_State *J)
{
	cTValue *frame = J->L->base - 1, *lim = J->L->base - J->baseslot + LJ_FR2;
	const BCIns *pc = J->pc;
	struct truth_origin *o;
	GCfunc *fn;

	if (!truth_on())
		return;
	truth_now = truth_count;
	o = truth_new();
	for (;;) {
		fn = frame_func(frame);
		if (pc && isluafunc(fn) && o->n < TRUTH_FRAMES) {
			o->f[o->n].pt = funcproto(fn);
			o->f[o->n++].pos = (unsigned int)(pc - proto_bc(funcproto(fn)));
		}
		if (frame <= lim)
			return;
		if (frame_islua(frame)) {
			pc = frame_pc(frame) - 1;
			frame = frame_prevl(frame);
		} else {
			pc = frame_iscont(frame) ? frame_contpc(frame) - 1 : NULL;
			frame = frame_prevd(frame);
		}
	}
}

/* The trace has returned below its base: from here on its caller is there. */
void msp_truth_returned(GCproto *pt, const BCIns *pc)
{
	struct truth_origin *o;

	if (!truth_on())
		return;
	truth_now = truth_count;
	o = truth_new();
	o->f[0].pt = pt;
	o->f[0].pos = (unsigned int)(pc - proto_bc(pt)) - 1;
	o->n = 1;
}

/* An IR instruction was emitted. */
void msp_truth_emit(unsigned int ref)
{
	truth_of[ref & 0xffff] = truth_now;
}

/* What is emitted now comes from that instruction: loop unrolling copies it. */
void msp_truth_like(unsigned int ref)
{
	truth_now = truth_of[ref & 0xffff];
}

/* Code generation begins, perhaps anew. */
void msp_truth_assemble(void)
{
	truth_codes = 0;
}

/* The instruction became the code from start to end. */
void msp_truth_code(unsigned int ref, MCode *start, MCode *end)
{
	if (start == end || truth_codes == 0x10000)
		return;
	truth_code_of[truth_codes].start = start;
	truth_code_of[truth_codes].end = end;
	truth_code_of[truth_codes++].ref = ref;
}

/* A growing text. */
struct truth_text {
	char *s;
	size_t n, room;
};

static void truth_print(struct truth_text *t, const char *format, ...)
{
	va_list args;

	if (t->n + 256 > t->room) {
		t->room = 2 * t->room + 4096;
		t->s = realloc(t->s, t->room);
		if (!t->s)
			abort();
	}
	va_start(args, format);
	t->n += (size_t)vsnprintf(t->s + t->n, 256, format, args);
	va_end(args);
}

static void truth_range(struct truth_text *t, MCode *mcode, MCode *start, MCode *end,
			unsigned int origin)
{
	struct truth_origin *o;

	if (!origin && truth_count > 1)
		origin = 1;
	o = &truth_origin[origin];
	truth_print(t, "range %u %u", (unsigned int)((char *)start - (char *)mcode),
		    (unsigned int)((char *)end - (char *)mcode));
	for (unsigned int i = 0; i < o->n; i++)
		truth_print(t, " %llx:%u", (unsigned long long)(uintptr_t)o->f[i].pt, o->f[i].pos);
	truth_print(t, "\n");
}

/* The trace is complete, and not run yet. */
void msp_truth_stop(GCtrace *T)
{
	struct truth_text t = {NULL, 0, 0};
	MCode *at = T->mcode, *end = (MCode *)((char *)T->mcode + T->szmcode);
	unsigned int origin = 0;

	if (!truth_on())
		return;
	truth_print(&t, "trace %u %llx %u\n", (unsigned int)T->traceno,
		    (unsigned long long)(uintptr_t)T->mcode, (unsigned int)T->szmcode);
	/* Code was made from its end on; what no instruction became goes with the one before it. */
	for (unsigned int i = truth_codes; i-- > 0;) {
		if (truth_code_of[i].start > at)
			truth_range(&t, T->mcode, at, truth_code_of[i].start, origin);
		origin = truth_of[truth_code_of[i].ref & 0xffff];
		truth_range(&t, T->mcode, truth_code_of[i].start, truth_code_of[i].end, origin);
		at = truth_code_of[i].end;
	}
	/* Behind the last instruction: on the way to where the recording ended. */
	if (at < end)
		truth_range(&t, T->mcode, at, end, truth_count - 1);
	truth_print(&t, "done\n");
	if (write(truth_fd, t.s, t.n) != (ssize_t)t.n)
		abort();
	free(t.s);
}
