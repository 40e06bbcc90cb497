/* SPDX-License-Identifier: MIT */
/*
 * Reads the profiles of Tarantool's sysprof, and those of moonspy's own in-process profiler:
 * docs/sysprof.md. The file may be cut off, damaged or made to harm: memory is taken for bytes that are
 * there, and for samples only as far as their stacks differ.
 */
#include <stdlib.h>
#include <string.h>

#include "output/output.h"
#include "output/sysprof.h"

struct reader {
	struct sysprof_in in;
	struct sysprof_symbols symbols;
	struct sysprof_frame_cache cache;
	struct sysprof_stack stack;
	struct sysprof_records records;
	struct msp_profile *profile;
	unsigned char version;
	bool ended;
};

static int read_head(struct reader *r, char magic[4], unsigned char *version)
{
	unsigned char reserved[SYSPROF_RESERVED];
	int err;

	magic[3] = 0;
	if ((err = sysprof_bytes(&r->in, magic, 3)) || (err = sysprof_byte(&r->in, version)))
		return err;
	return sysprof_bytes(&r->in, reserved, sizeof(reserved));
}

static int read_cfunc(struct reader *r)
{
	struct sysprof_string name;
	uint64_t addr;
	int err;

	if ((err = sysprof_number(&r->in, &addr)) || (err = sysprof_string(&r->in, &name)))
		return err;
	if (sysprof_is_record(addr, name))
		return sysprof_record(&r->records, &r->in, r->profile, name);
	return sysprof_add_cfunc(&r->symbols, addr, name);
}

static int read_symbol(struct reader *r, enum sysprof_symbol type)
{
	struct sysprof_string chunk;
	uint64_t addr, proto, line;
	int err;

	if (type == SYSPROF_CFUNC)
		return read_cfunc(r);
	if ((err = sysprof_number(&r->in, &addr)))
		return err;
	if (type == SYSPROF_LFUNC) {
		if ((err = sysprof_string(&r->in, &chunk)) || (err = sysprof_number(&r->in, &line)))
			return err;
		return sysprof_add_proto(&r->symbols, addr, chunk, line);
	}
	if ((err = sysprof_number(&r->in, &proto)) || (err = sysprof_number(&r->in, &line)))
		return err;
	return sysprof_add_trace(&r->symbols, addr, proto, line);
}

static int read_symbols(struct reader *r)
{
	unsigned char version, head;
	char magic[4];
	int err = read_head(r, magic, &version);

	if (err)
		return err;
	if (strcmp(magic, SYSPROF_SYMBOLS_MAGIC))
		return sysprof_bad(&r->in, "not a sysprof file");
	if (version != SYSPROF_SYMBOLS_VERSION)
		return sysprof_bad(&r->in, "version %u of the table of symbols is not known",
				   version);
	for (;;) {
		if ((err = sysprof_byte(&r->in, &head)) || head & SYSPROF_END)
			return err;
		if (head > SYSPROF_TRACE)
			return sysprof_bad(&r->in, "byte %llu: no kind of symbol",
					   (unsigned long long)r->in.offset);
		if ((err = read_symbol(r, (enum sysprof_symbol)head)))
			return err;
	}
}

static int read_lua(struct reader *r)
{
	struct sysprof_stack *s = &r->stack;
	struct sysprof_lua_frame frame;
	int err;

	for (;;) {
		if ((err = sysprof_byte(&r->in, &frame.type)) || frame.type & SYSPROF_END)
			return err;
		if (frame.type < SYSPROF_FRAME_LFUNC || frame.type > SYSPROF_FRAME_FFUNC)
			return sysprof_bad(&r->in, "byte %llu: no kind of frame",
					   (unsigned long long)r->in.offset);
		frame.line = 0;
		if ((err = sysprof_number(&r->in, &frame.value)))
			return err;
		if (frame.type == SYSPROF_FRAME_LFUNC &&
		    (err = sysprof_number(&r->in, &frame.line)))
			return err;
		if (s->luas < SYSPROF_FRAMES_KEPT)
			s->lua[s->luas++] = frame;
		else
			s->deep = true;
	}
}

static int read_host(struct reader *r)
{
	struct sysprof_stack *s = &r->stack;
	uint64_t addr;
	int err;

	for (;;) {
		if ((err = sysprof_number(&r->in, &addr)) || !addr)
			return err;
		if (s->hosts < SYSPROF_FRAMES_KEPT)
			s->host[s->hosts++] = addr;
		else
			s->deep = true;
	}
}

static int add_sample(struct reader *r)
{
	struct msp_quality *quality = msp_profile_quality(r->profile);
	const char *reason;
	int err;

	if (r->records.sampled) { /* it was told with more in it */
		r->records.sampled = false;
		return 0;
	}
	err = sysprof_join(&r->stack, &r->symbols, &r->cache, r->profile, &reason);
	if (err)
		return err;
	quality->samples++;
	if (!reason)
		quality->whole++;
	else if (!strcmp(reason, "truncated"))
		quality->truncated++;
	else
		msp_quality_error(quality, reason, 1);
	return msp_profile_add(r->profile, 0, 0, r->stack.id, r->stack.ids, 1);
}

static int read_sample(struct reader *r, unsigned char state)
{
	struct sysprof_stack *s = &r->stack;
	int err = 0;

	s->luas = s->hosts = 0;
	s->deep = false;
	s->state = state;
	if (state == SYSPROF_IN_TRACE) {
		if ((err = sysprof_number(&r->in, &s->trace)) ||
		    (err = sysprof_number(&r->in, &s->proto)) ||
		    (err = sysprof_number(&r->in, &s->line)))
			return err;
		return add_sample(r);
	}
	if (state >= SYSPROF_IN_LFUNC && state <= SYSPROF_IN_CFUNC)
		err = read_lua(r);
	if (!err)
		err = read_host(r);
	return err ? err : add_sample(r);
}

static int read_event(struct reader *r)
{
	unsigned char event;
	int err = sysprof_byte(&r->in, &event);

	if (err)
		return err;
	if (event & SYSPROF_END) {
		r->ended = true;
		return 0;
	}
	if (event < SYSPROF_STATE_COUNT)
		return read_sample(r, event);
	if (r->version == 1 && event == SYSPROF_NEW_LFUNC)
		return read_cfunc(r);
	if (r->version > 1 && event <= SYSPROF_NEW_TRACE)
		return read_symbol(r, (enum sysprof_symbol)(event - SYSPROF_NEW_LFUNC));
	return sysprof_bad(&r->in, "byte %llu: no kind of event", (unsigned long long)r->in.offset);
}

static int read_events(struct reader *r)
{
	char magic[4];
	int err = read_head(r, magic, &r->version);

	if (err)
		return err;
	if (!strcmp(magic, SYSPROF_MEMORY_MAGIC))
		return sysprof_bad(&r->in, "a profile of memory, not of CPU time");
	if (strcmp(magic, SYSPROF_EVENTS_MAGIC))
		return sysprof_bad(&r->in, "byte %llu: no events",
				   (unsigned long long)r->in.offset);
	if (!r->version || r->version > SYSPROF_EVENTS_VERSION)
		return sysprof_bad(&r->in, "version %u of the events is not known", r->version);
	while (!err && !r->ended)
		err = read_event(r);
	return err;
}

static int read_all(struct reader *r)
{
	int err = read_symbols(r);

	if (!err)
		err = read_events(r);
	if (!err && !sysprof_at_end(&r->in))
		err = sysprof_bad(&r->in, "byte %llu: more than a profile",
				  (unsigned long long)r->in.offset);
	return err;
}

static struct reader *make_reader(FILE *in, char *error, size_t error_size)
{
	struct reader *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->in = (struct sysprof_in){.in = in, .error = error, .error_size = error_size};
	sysprof_symbols_init(&r->symbols);
	r->profile = msp_profile_new();
	return r;
}

static void free_reader(struct reader *r)
{
	sysprof_symbols_free(&r->symbols);
	sysprof_stack_free(&r->stack);
	sysprof_records_free(&r->records);
	msp_profile_free(r->profile);
	free(r->in.text);
	free(r);
}

int msp_read_sysprof(FILE *in, struct msp_profile **out, char *error, size_t error_size)
{
	struct reader *r = make_reader(in, error, error_size);
	int err = MSP_E_NOMEM;

	*out = NULL;
	if (error_size)
		error[0] = 0;
	if (r && r->profile)
		err = sysprof_stack_init(&r->stack);
	if (!err)
		err = read_all(r);
	if (err && error_size && !error[0])
		snprintf(error, error_size, "%s", msp_strerror(err));
	/* What was read before it went wrong is right. */
	if (r && (!err || (err == MSP_E_FORMAT && msp_profile_stack_count(r->profile)))) {
		*out = r->profile;
		r->profile = NULL;
	}
	if (*out && r->in.cut)
		err = 0;
	if (r)
		free_reader(r);
	return err;
}
