/* SPDX-License-Identifier: MIT */
/* The functions inside of compiled code: frames that are on no stack. */
#include "moonspy/moonspy.h"
#include "symbols/internal.h"

/* Names what a trace has at once: its functions may be gone when a sample shows them. */
static void name_function(void *ctx, const struct msp_raw_frame *frame,
			  const struct msp_raw_frame *parent)
{
	msp_lj_names_remember(ctx, frame->addr, frame->ident, parent ? parent->addr : 0,
			      parent ? parent->pos : 0);
}

/* The frames of the trace that raw[i], a VM frame, was met in, and raw[i + 1]. 0: just that frame. */
static int trace_frames(struct msp_symbolizer *s, const struct msp_raw_frame *raw,
			struct msp_raw_frame *out)
{
	const struct msp_vm *vm =
		s->space ? msp_space_vm_at(s->space, raw->image, raw->addr) : NULL;
	struct msp_lj_traces *traces = vm ? msp_space_vm_traces(s->space, vm) : NULL;
	struct msp_lj_names *names = vm ? msp_space_vm_names(s->space, vm) : NULL;
	bool fresh;
	int n;

	if (!traces || !names)
		return MSP_E_GONE;
	n = msp_lj_traces_frames(traces, raw, raw + 1, out, &fresh);
	if (fresh)
		msp_lj_traces_functions(traces, raw, name_function, names);
	return n;
}

int msp_symbolizer_keep_trace(struct msp_symbolizer *s, const struct msp_vm *vm, uint64_t number,
			      uint64_t mcode, uint64_t szmcode)
{
	struct msp_lj_traces *traces = msp_space_vm_traces(s->space, vm);
	struct msp_lj_names *names = msp_space_vm_names(s->space, vm);
	struct msp_raw_frame frame;
	int err;

	if (!traces || !names)
		return MSP_E_NOMEM;
	err = msp_lj_traces_keep(traces, number, mcode, szmcode, &frame);
	if (!err)
		msp_lj_traces_functions(traces, &frame, name_function, names);
	return err;
}

/* Is this the frame of compiled code in a known trace, with the function at its base behind it? */
static bool is_trace(const struct msp_raw_frame *raw, size_t n, size_t i)
{
	return raw[i].kind == MSP_RAW_VM && raw[i].flags & MSP_RAWF_JIT && raw[i].ident &&
	       i + 1 < n && raw[i + 1].kind == MSP_RAW_LUA && raw[i + 1].flags & MSP_RAWF_JIT;
}

size_t msp_symbolizer_inline(struct msp_symbolizer *symbols, const struct msp_raw_frame *raw,
			     size_t n, struct msp_raw_frame *out, uint32_t *from, size_t room,
			     struct msp_inlined *info)
{
	struct msp_raw_frame frames[MSP_TRACE_DEPTH];
	size_t count = 0;
	int got;

	*info = (struct msp_inlined){0};
	for (size_t i = 0; i < n && count < room; i++) {
		if (from)
			from[count] = i;
		out[count++] = raw[i];
		if (!is_trace(raw, n, i))
			continue;
		got = trace_frames(symbols, &raw[i], frames);
		info->gone |= got == MSP_E_GONE;
		/* each frame that is still to come has its place */
		if (got <= 0 || count + got + (n - i - 2) > room)
			continue;
		i++;
		for (int k = 0; k < got; k++) {
			info->estimated |= frames[k].flags & MSP_RAWF_GUESS;
			if (from) /* the last one is that of the stack */
				from[count] = k == got - 1 ? i : MSP_NOT_ON_STACK;
			out[count++] = frames[k];
		}
	}
	return count;
}
