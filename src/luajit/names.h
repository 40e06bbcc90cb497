/* SPDX-License-Identifier: MIT */
/* Inside of the names part: who shares what. Internal to src/luajit/. */
#ifndef MSP_LUAJIT_NAMES_H
#define MSP_LUAJIT_NAMES_H

#include "luajit/bytecode.h"
#include "luajit/luajit.h"
#include "luajit/proto.h"

/* ---- Text (names_text.c) ---- */

#define MSP_NAME_MAX 256	 /* a function's name, with its NUL */
#define MSP_LABEL_MAX 288	 /* a chunk's label, with its NUL */
#define MSP_CHUNK_MAX (64 << 10) /* of a chunk name this much is read */

struct msp_text {
	size_t len;
	char s[MSP_NAME_MAX];
};

void msp_text_clear(struct msp_text *text);
void msp_text_add(struct msp_text *text, const char *s); /* what does not fit is cut */
void msp_text_add_key(struct msp_text *text, const char *key, char separator); /* ".f" or ["a b"] */
void msp_text_add_index(struct msp_text *text, int index);		       /* "[3]" */

uint64_t msp_hash_bytes(const void *data, size_t size);

/* Label of a chunk name of len bytes, of which cap bytes are at chunk. Returns the label's length. */
size_t msp_chunk_label(const char *chunk, size_t len, bool builtin, char label[MSP_LABEL_MAX]);

/* Strings that live as long as the names object; each content once. */
struct msp_intern {
	char **slot;
	size_t count, mask;
	size_t bytes;
};

const char *msp_intern_add(struct msp_intern *intern, const char *s); /* NULL: out of memory */
void msp_intern_free(struct msp_intern *intern);

/* ---- Definitions (names_define.c) and call sites (names_site.c) ---- */

/* Everything that looks at bytecode needs this much. */
struct msp_bc_view {
	const struct msp_lj_layout *layout;
	const struct msp_memory *mem;
	const struct msp_bc_set *set;
	const struct msp_proto *pt;
	uint32_t work; /* steps left: hostile bytecode must not take long */
};

#define MSP_VIEW_WORK 4000000u

static inline struct msp_bc_ins msp_view_ins(const struct msp_bc_view *view, uint32_t pos)
{
	return msp_bc_decode(view->set, msp_proto_ins(view->pt, pos));
}

/* A string constant of the function, into buf; false if there is none. */
bool msp_view_string(const struct msp_bc_view *view, uint32_t index, char buf[MSP_NAME_MAX]);
/* The variable that lives in slot at pos, if it has a name. */
bool msp_view_var(struct msp_bc_view *view, uint32_t pos, uint32_t slot, struct msp_proto_var *out);
/*
 * The one instruction that can have put the value into slot that pos sees;
 * false if there may be several, or none is known.
 */
bool msp_view_find_def(struct msp_bc_view *view, uint32_t pos, uint32_t slot, uint32_t *def);

/* Position of the instruction in the parent that makes closures of the child; false: not its parent. */
bool msp_define_find(const struct msp_bc_view *view, const struct msp_proto *child, uint32_t *pos);
/* The name that the parent gives to what it makes at pos. False: none. */
bool msp_define_name(struct msp_bc_view *view, const struct msp_proto *child, uint32_t pos,
		     struct msp_text *out);

/* How a call site gets at the function. */
enum msp_site_kind { MSP_SITE_KEY, MSP_SITE_UPVALUE, MSP_SITE_LOCAL };
struct msp_site {
	enum msp_site_kind kind; /* key: as a global, field or method */
	uint32_t index;		 /* of the upvalue */
	char name[MSP_NAME_MAX];
};
/* False: the call at pos has no name for what it calls, or more than one. */
bool msp_site_find(struct msp_bc_view *view, uint32_t pos, struct msp_site *out);

/* ---- What is on the heap (names_heap.c) ---- */

struct msp_pair {
	uint64_t key;	   /* 0 = free */
	uint64_t value[2]; /* the first and the last one seen */
};

struct msp_pairs {
	struct msp_pair *pair;
	size_t count, mask;
};

struct msp_heap {
	struct msp_pairs parent;  /* prototype -> prototypes that have it among their constants */
	struct msp_pairs closure; /* prototype -> closures of it */
	struct msp_pairs field;	  /* closure -> string keys it is stored under */
	/* Tagged values: tag in the bits from tag_shift on, reference in ref_mask. */
	uint64_t func_tag, str_tag, ref_mask;
	uint32_t tag_shift;
};

/* NULL: not there. */
const struct msp_pair *msp_pairs_find(const struct msp_pairs *pairs, uint64_t key);
void msp_pairs_add(struct msp_pairs *pairs, uint64_t key, uint64_t value); /* unless full */

void msp_heap_init(struct msp_heap *heap, const struct msp_lj_layout *layout);
void msp_heap_clear(struct msp_heap *heap);
/* What the scan finds: an object that may be a closure; a node with a function under a string. */
void msp_heap_closure(struct msp_heap *heap, const struct msp_lj_layout *layout, uint64_t addr,
		      const uint8_t *closure);
void msp_heap_node(struct msp_heap *heap, uint64_t value, uint64_t key);

/* The one key under which a function stands in tables. False: none, or several. */
bool msp_heap_name(const struct msp_lj_names *names, uint64_t pt, struct msp_text *out);
/* Does a function stand in tables under that key? -1: there is no closure of it known. */
int msp_heap_has_key(const struct msp_lj_names *names, uint64_t pt, const char *key);
/* Is that upvalue of the caller known to be another function? */
bool msp_heap_upvalue_other(const struct msp_lj_names *names, uint64_t caller, uint32_t index,
			    uint64_t pt);
/* Which of the caller's count upvalues is known to be that function; -1: none. */
int msp_heap_upvalue_of(const struct msp_lj_names *names, uint64_t caller, uint32_t count,
			uint64_t pt);

/* ---- Scanning for it (names_index.c) ---- */

/* A stretch of memory that is scanned, from the inside out. */
struct msp_span {
	uint64_t seed;		     /* where it began */
	uint64_t lo, hi;	     /* scanned so far */
	uint64_t lo_limit, hi_limit; /* go no further */
	bool given;		     /* a range from outside: may have holes, has an end */
	uint8_t misses;		     /* unreadable stretches in a row */
};

struct msp_lj_index {
	struct msp_span *span;
	size_t span_count;
	/*
	 * What is known, and what the pass under way finds: replaces it in the
	 * end. The first pass adds to what is known at once.
	 */
	struct msp_heap heap, next;
	uint8_t *block;		      /* what is being scanned */
	uint32_t passes;	      /* completed */
	bool running;		      /* a pass is under way */
	bool in_pass;		      /* the scan is for the pass, not for a single request */
	uint64_t pass_cost, pass_end; /* of the last pass, in microseconds */
	uint64_t credit, credit_time; /* microseconds that requests may spend on scanning */
	uint32_t misses,
		skipped; /* scans around an address that found no parent; that were not made */
	uint32_t work;	 /* bytes of prototypes that the block at hand may still have */
	uint64_t bytes, protos; /* counters */
};

void msp_index_init(struct msp_lj_names *names);
void msp_index_free(struct msp_lj_names *names);
/* Scans around an address. False: there is no credit left for it. */
bool msp_index_near(struct msp_lj_names *names, uint64_t addr, uint32_t size);
/* Goes on with the pass, or begins one if it is time to, as long as the credit lasts. */
void msp_index_run(struct msp_lj_names *names);

/* ---- Cache (names_cache.c) ---- */

/* Line information of one function. */
struct msp_lines {
	uint32_t sizebc, firstline, numline;
	uint8_t delta[];
};

struct msp_names_entry {
	uint64_t pt, ident; /* ident 0 = free */
	const struct msp_lj_function *fn;
	struct msp_lines *lines; /* NULL: not kept */
	uint32_t tried;		 /* passes of the index when its definition was last looked for */
	uint8_t tries;		 /* how often it was looked for again */
	bool settled, used;
	uint8_t calls;		 /* how often a call site was looked at */
	uint32_t called;	 /* passes of the index when it was, last */
};

#define MSP_ANONYMOUS "anonymous"

/* Room for one more entry; MSP_E_NOMEM. Entries may move, and go. */
int msp_cache_reserve(struct msp_lj_names *names);
struct msp_names_entry *msp_cache_find(const struct msp_lj_names *names, uint64_t pt,
				       uint64_t ident);
struct msp_names_entry *msp_cache_add(struct msp_lj_names *names, uint64_t pt, uint64_t ident);
/* The one copy of an answer, whose strings are interned. fn->name NULL: what stands for too many. */
const struct msp_lj_function *msp_cache_function(struct msp_lj_names *names,
						 const struct msp_lj_function *fn);
/* Reads the chunk name of a prototype into fn->chunk and fn->file. MSP_E_LIMIT: too many. */
int msp_cache_chunk(struct msp_lj_names *names, const struct msp_proto *pt,
		    struct msp_lj_function *fn);
void msp_cache_keep_lines(struct msp_lj_names *names, struct msp_names_entry *entry,
			  const struct msp_proto *pt);
void msp_cache_drop_lines(struct msp_lj_names *names);
uint32_t msp_cache_line(const struct msp_lines *lines, uint32_t pos); /* 0 = unknown */
void msp_cache_free(struct msp_lj_names *names);

/* A call site that gave a name: the second function seen there gets none. */
struct msp_names_site {
	uint64_t caller, pt, ident; /* caller 0 = free */
	uint32_t pos;
};

#define MSP_NAMES_RECENT 16

struct msp_lj_names {
	struct msp_lj_layout layout;
	const struct msp_bc_set *set; /* NULL: opcodes are not known */
	struct msp_memory mem;
	uint64_t g;

	struct msp_names_entry *entry;
	size_t entry_count, entry_mask;
	size_t line_bytes;

	struct msp_intern strings;
	struct msp_lj_function **function; /* each content once */
	size_t function_count, function_mask;
	struct msp_label {
		const char *label;
		uint64_t chunk_hash;
	} * label; /* who has a label */
	size_t label_count, label_mask;

	struct msp_names_site *site;
	size_t site_count;

	struct msp_proto recent[MSP_NAMES_RECENT]; /* parents and callers */
	uint32_t recent_next;
	bool improving; /* what the index knows is enough: no scanning */
	char *chunk;	/* MSP_CHUNK_MAX bytes */

	struct msp_lj_index index;
};

#endif
