/* SPDX-License-Identifier: MIT */
/*
 * usage: vms LIBRARY: makes three VMs and closes one. Prints the addresses of the two that are left, waits for a line, then
 * for one after each thing that it does to the list of live VMs: what is no VM is in it; one is not in it, and it says
 * that some are missing; it has no end.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kit.h"

static struct ljvm_slots *slots_of(const struct kit *kit)
{
	return (struct ljvm_slots *)(uintptr_t)kit->addresses->live->slots;
}

/* The next empty slot. */
static struct ljvm_slot *empty(struct ljvm_slots *slots)
{
	for (uint32_t i = 0; i < slots->count; i++)
		if (!slots->slot[i].g)
			return &slots->slot[i];
	kit_die("the list is full");
}

static void put(struct ljvm_slots *slots, uint64_t g)
{
	struct ljvm_slot *slot = empty(slots);

	slot->serial = 4711;
	slot->g = g;
}

static void say(const char *what)
{
	char line[16];

	puts(what);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(0);
}

int main(int argc, char **argv)
{
	static char garbage[1 << 16];
	struct ljvm_memory own = {0};
	struct ljvm_vm vm[2];
	struct ljvm_slots *slots;
	struct kit kit;
	char text[64];
	void *L[3];

	if (argc != 2)
		kit_die("usage: vms LIBRARY");
	kit_open(&kit, argv[1]);
	own.read = kit.helpers->read_self;
	for (int i = 0; i < 3; i++)
		L[i] = kit.newstate();
	kit.close(L[1]);
	for (uint32_t i = 0; i < 2; i++)
		if (kit.helpers->vm(&own, i, &vm[i]) < 0)
			kit_die("VM %u is not in the list", i);
	snprintf(text, sizeof(text), "0x%llx 0x%llx", (unsigned long long)vm[0].g,
		 (unsigned long long)vm[1].g);
	say(text);
	slots = slots_of(&kit);
	put(slots, vm[0].g + 8);
	put(slots, (uint64_t)(uintptr_t)garbage);
	put(slots, 8);
	say("lies");
	kit.addresses->live->missed = 1;
	for (uint32_t i = 0; i < slots->count; i++)
		if (slots->slot[i].g == vm[0].g)
			slots->slot[i].g = 0;
	say("missed");
	slots->next = (uint64_t)(uintptr_t)slots;
	say("endless");
	return 0;
}
