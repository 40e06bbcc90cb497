/* SPDX-License-Identifier: MIT */
/*
 * What has its name already. The collector frees functions, traces are flushed: a stack that shows one for
 * the first time is named at once, all others when the worker next looks. A key that is lost to another
 * only wakes the worker once more.
 */
#include "inprocess/internal.h"
#include "unwind/ident.h"

#define KNOWN 8192 /* a power of two */

static _Atomic(uint64_t) known[KNOWN];

bool sample_may_be_new(const struct sample *sample)
{
	const struct msp_raw_frame *last;

	if (!sample->frames)
		return false;
	last = &sample->frame[sample->frames - 1];
	if (last->kind != MSP_RAW_ERROR)
		return false;
	return last->pos == MSP_ERR_NO_PROCESS || last->pos == MSP_ERR_NO_MAPPING ||
	       last->pos == MSP_ERR_NO_FILE || last->pos == MSP_ERR_NO_TABLE ||
	       last->pos == MSP_ERR_LUA_NO_VM;
}

/* Of what may go away: a function, a trace. 0: it stays. */
static uint64_t key_of(const struct msp_raw_frame *frame)
{
	bool goes = frame->kind == MSP_RAW_LUA ||
		    (frame->kind == MSP_RAW_VM && frame->flags & MSP_RAWF_JIT);

	return goes ? msp_ident_mix(msp_ident_mix(frame->addr, frame->ident), frame->trace) | 1 : 0;
}

/* Of a stack that ends where a look at the mappings may help. */
static uint64_t key_of_end(const struct sample *sample)
{
	return sample_may_be_new(sample)
		       ? msp_ident_mix(sample->frame[sample->frames - 1].addr, MSP_RAW_ERROR) | 1
		       : 0;
}

static _Atomic(uint64_t) *place_of(uint64_t key)
{
	return &known[key / 2 % KNOWN];
}

static bool is_known(uint64_t key)
{
	return !key || atomic_load_explicit(place_of(key), memory_order_relaxed) == key;
}

static void learn(uint64_t key)
{
	if (key)
		atomic_store_explicit(place_of(key), key, memory_order_relaxed);
}

bool known_all(const struct sample *sample)
{
	bool all = is_known(key_of_end(sample));

	for (size_t i = 0; all && i < sample->frames; i++)
		all = is_known(key_of(&sample->frame[i]));
	return all;
}

void known_add(const struct sample *sample)
{
	learn(key_of_end(sample));
	for (size_t i = 0; i < sample->frames; i++)
		learn(key_of(&sample->frame[i]));
}

void known_forget(void)
{
	for (size_t i = 0; i < KNOWN; i++)
		atomic_store_explicit(&known[i], 0, memory_order_relaxed);
}
