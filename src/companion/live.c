/* SPDX-License-Identifier: MIT */
/*
 * The list of live VMs, as well as it can be known from outside of the VM. There is no lock: we are called where the
 * program may hold the loader's, and before or after a fork.
 */
#include <link.h>
#include <stdio.h>
#include <unistd.h>

#include "companion/companion.h"
#include "moonspy/moonspy.h"

#include "../instrument/vm/ljvm_probes.h"
#include "companion/slots.h"

struct ljvm_live *companion_live(void)
{
	return &live;
}

/* ---- Finding the LuaJIT: when there is a VM ---- */

#define MOST_LOOKS 8 /* that find none: the program has another Lua */

static char why[128];
static int looker;	    /* pid of the process of which a thread looks */
static uint64_t loads_then; /* of libraries, at the last look */
static int looks;

const char *companion_why(void)
{
	return why;
}

static int take_loads(struct dl_phdr_info *info, size_t size, void *loads)
{
	(void)size;
	*(uint64_t *)loads = info->dlpi_adds;
	return 1;
}

static void look(uint64_t L)
{
	uint64_t loads = 0;

	if (companion_ready() || looks == MOST_LOOKS)
		return;
	dl_iterate_phdr(take_loads, &loads);
	if (looks && loads == loads_then)
		return;
	loads_then = loads;
	looks++;
	if (companion_is_needless())
		snprintf(why, sizeof(why), "the LuaJIT has a descriptor of its own");
	else
		companion_find(L, companion_fill, why, sizeof(why));
}

/* ---- The list ---- */

/* VMs that were created while another thread looked. */
#define WAITING 256
static uint64_t waiting[WAITING];

/* Which thread runs it: its thread pointer, which debuggers and the kernel know it by. */
static uint64_t this_thread(void)
{
	return (uintptr_t)__builtin_thread_pointer();
}

static void put(uint64_t g, uint64_t L)
{
	struct ljvm_slot *slot = claim_slot();

	if (!slot) {
		COUNT(&live.missed);
		return;
	}
	SET(&live.slots, (uintptr_t)&first_slots);
	SET(&slot->serial, COUNT(&live.created));
	SET(&slot->thread, this_thread());
	SET(&slot->g, g);
	LJVM_PROBE2("vm_created", g, L);
}

/* The VM of L, which is in the list now; 0: it is of another LuaJIT, which is counted once for several calls. */
static uint64_t add(uint64_t L)
{
	static __thread uint64_t missed_last;
	uint64_t g = companion_vm_of(L);

	if (!g && L != missed_last) {
		missed_last = L;
		COUNT(&live.missed);
	}
	if (g && !slot_of(g))
		put(g, L);
	return g;
}

static void add_waiting(void)
{
	uint64_t L;

	for (int i = 0; i < WAITING; i++)
		if (GET(&waiting[i]) && (L = __atomic_exchange_n(&waiting[i], 0, __ATOMIC_ACQ_REL)))
			add(L);
}

static bool replace_waiting(uint64_t from, uint64_t to)
{
	for (int i = 0; i < WAITING; i++) {
		uint64_t is = from;

		if (GET(&waiting[i]) == from &&
		    __atomic_compare_exchange_n(&waiting[i], &is, to, false, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			return true;
	}
	return false;
}

/* Once: one call of the program's can come to us several times. */
static void wait_for_look(uint64_t L)
{
	if (!replace_waiting(L, L) && !replace_waiting(0, L))
		COUNT(&live.missed);
}

/* false: another thread looks. A fork's child does not have that thread. */
static bool take_look(void)
{
	int pid = getpid(), other = GET(&looker);

	return other != pid && __atomic_compare_exchange_n(&looker, &other, pid, false,
							   __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

uint64_t companion_created(struct lua_State *L)
{
	if (!companion_ready()) {
		if (take_look()) {
			look((uintptr_t)L);
			SET(&looker, 0);
		} else {
			wait_for_look((uintptr_t)L);
		}
		if (!companion_ready())
			return 0;
		add_waiting();
	}
	return add((uintptr_t)L);
}

void companion_closed(struct lua_State *L)
{
	struct ljvm_slot *slot;
	uint64_t g;

	if (!companion_ready()) {
		replace_waiting((uintptr_t)L, 0);
		return;
	}
	g = companion_vm_of((uintptr_t)L);
	slot = g ? slot_of(g) : NULL;
	if (!slot)
		return;
	LJVM_PROBE2("vm_closed", g, L);
	SET(&slot->g, 0);
	SET(&slot->unused, 0);
}

bool companion_is_live(uint64_t g)
{
	return slot_of(g) != NULL;
}

void companion_seen(uint64_t g)
{
	struct ljvm_slot *slot = slot_of(g);

	if (slot)
		SET(&slot->thread, this_thread());
}
