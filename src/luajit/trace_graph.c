/* SPDX-License-Identifier: MIT */
/* Steps and frames of the ways from one place to another, each once. */
#include "luajit/trace_proof.h"

uint16_t msp_steps_add_frame(struct msp_steps *s, const struct msp_path_frame *f)
{
	const struct msp_path_frame *have;
	uint32_t i;

	for (i = 0; i < s->frames; i++) {
		have = &s->frame[i];
		if (have->proto == f->proto && have->addr == f->addr && have->depth == f->depth &&
		    (!f->depth || (have->parent == f->parent && have->call == f->call)))
			return i;
	}
	if (i == MSP_STEP_FRAMES || f->depth >= MSP_TRACE_DEPTH ||
	    (f->proto && !msp_trace_need_bytecode(s->r, f->proto))) {
		s->too_many = true;
		return 0;
	}
	s->frame[i] = *f;
	if (!f->depth)
		s->frame[i].parent = i;
	return s->frames++;
}

uint32_t msp_steps_add(struct msp_steps *s, uint16_t frame, uint32_t pos, uint32_t not_to)
{
	struct msp_step *step;
	uint32_t i;

	if (s->too_many || !s->frame[frame].proto ||
	    pos >= msp_trace_proto_size(s->frame[frame].proto)) {
		s->too_many = true;
		return 0;
	}
	for (i = 0; i < s->steps; i++) {
		step = &s->step[i];
		if (step->pos == pos && step->frame == frame && step->not_to == not_to)
			return i;
	}
	if (i == MSP_STEPS) {
		s->too_many = true;
		return 0;
	}
	s->step[i] = (struct msp_step){
		.frame = frame,
		.pos = pos,
		.not_to = not_to,
		.op = msp_bc_decode(s->r->set, s->frame[frame].proto->ins[pos]).op};
	return s->steps++;
}

uint16_t msp_steps_frame_of(struct msp_steps *s, uint16_t node)
{
	const struct msp_trace_node *n = &s->r->image->node[node];
	struct msp_path_frame f = {0};

	if (n->parent) {
		f.parent = msp_steps_frame_of(s, n->parent);
		f.depth = s->frame[f.parent].depth + 1;
		f.call = s->frame[f.parent].proto ? s->r->image->node[n->parent].pos : 0;
	}
	if (n->kind == MSP_RAW_LUA)
		f.proto = msp_trace_proto_at(s->r, n->addr);
	else
		f.addr = n->addr;
	if (n->kind == MSP_RAW_LUA && !f.proto)
		s->too_many = true;
	return s->too_many ? 0 : msp_steps_add_frame(s, &f);
}

void msp_steps_find_back(struct msp_steps *s)
{
	uint16_t *from = s->back_from;

	memset(from, 0, sizeof(s->back_from));
	for (uint32_t e = 0; e < s->edges; e++)
		from[(s->edge[e] & ~MSP_EDGE_RETURNS) + 1]++;
	for (uint32_t i = 0; i < s->steps; i++)
		from[i + 1] += from[i];
	for (uint32_t i = 0; i < s->steps; i++) /* moves each to where the next one begins */
		for (uint32_t k = 0; k < s->step[i].edges; k++) {
			uint16_t edge = s->edge[s->step[i].edge + k];

			s->back[from[edge & ~MSP_EDGE_RETURNS]++] = i | (edge & MSP_EDGE_RETURNS);
		}
	memmove(from + 1, from, s->steps * sizeof(*from));
	from[0] = 0;
}
