/* SPDX-License-Identifier: MIT */
/*
 * The descriptor itself. Constants and addresses have the size 0 until a LuaJIT is proved; what is not known of it, says
 * -1 or 0. Helpers are there from the beginning: they serve descriptors of other processes too.
 */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "companion/helpers.h"
#include "luajit/build.h"
#include "luajit/descriptor.h"
#include "target/own.h"

struct companion_whole companion_descriptor = {
	.head = {.magic = {'L', 'u', 'a', 'J', 'I', 'T', 'v', 'm'},
		 .major = LJVM_MAJOR,
		 .minor = LJVM_MINOR,
		 .size = sizeof(struct companion_whole),
		 .pointer_size = sizeof(void *),
		 .flags = LJVM_FLAG_OUTSIDE | LJVM_FLAG_LIVE_PARTIAL,
		 .constants = {offsetof(struct companion_whole, constants), 0},
		 .addresses = {offsetof(struct companion_whole, addresses), 0},
		 .helpers = {offsetof(struct companion_whole, helpers),
			     sizeof(struct ljvm_helpers)}},
	.helpers = {.read_self = companion_read_self,
		    .vm = companion_vm,
		    .owner = companion_owner,
		    .context = companion_context,
		    .frame_first = companion_frame_first,
		    .frame_next = companion_frame_next,
		    .function = companion_function,
		    .trace = companion_trace,
		    .cframe = companion_cframe},
};

/* Whoever wins if another library has that name, here is this one. */
extern struct companion_whole LJVM_SYMBOL
	__attribute__((alias("companion_descriptor"), visibility("default")));

__asm__(".pushsection .note.luajit, \"a\", %note\n"
	".balign 4\n"
	".4byte 992f - 991f, 994f - 993f, 1\n"
	"991: .asciz \"LuaJIT\"\n"
	"992: .balign 4\n"
	"993: .8byte companion_descriptor - 993b\n"
	"994: .balign 4\n"
	".popsection\n");

/* ---- Filling and using it ---- */

static struct ljvm_addresses addresses_of(const struct companion_found *found)
{
	static struct msp_lj_descriptor_text text;
	const struct msp_lj_layout *l = &found->build->layout;
	struct ljvm_addresses a = {
		.vm_code = (const void *)(uintptr_t)(found->base + l->vm_start),
		.vm_code_end = (const void *)(uintptr_t)(found->base + l->vm_end),
		.live = companion_live(),
	};

	msp_lj_descriptor_names(found->build, &text, &a);
	return a;
}

static void publish(struct ljvm_part *part, uint32_t size)
{
	__atomic_store_n(&part->size, size, __ATOMIC_RELEASE);
}

void companion_fill(const struct companion_found *found)
{
	struct companion_whole *d = &companion_descriptor;

	msp_lj_descriptor_constants(found->build, &d->constants);
	d->addresses = addresses_of(found);
	publish(&d->head.addresses, sizeof(d->addresses));
	publish(&d->head.constants, sizeof(d->constants));
}

bool companion_ready(void)
{
	return __atomic_load_n(&companion_descriptor.head.constants.size, __ATOMIC_ACQUIRE) != 0;
}

const struct ljvm_constants *companion_constants(void)
{
	return &companion_descriptor.constants;
}

const struct ljvm_addresses *companion_addresses(void)
{
	return &companion_descriptor.addresses;
}

bool companion_is_needless(void)
{
	const void *first = dlsym(RTLD_DEFAULT, "luaJIT_vm_descriptor");
	const void *next = dlsym(RTLD_NEXT, "luaJIT_vm_descriptor");

	dlerror(); /* there mostly is none, which is no error of the program's */
	return next || (first && first != &companion_descriptor);
}

bool companion_read(void *to, uint64_t address, size_t size)
{
	int kept = errno;
	bool done = own_read((uint32_t)getpid(), to, address, size);

	errno = kept;
	return done;
}

uint64_t companion_ref(uint64_t address)
{
	uint64_t value = 0;

	return companion_read(&value, address, companion_descriptor.constants.gc64 ? 8 : 4) ? value
											    : 0;
}

uint64_t companion_word(uint64_t address)
{
	uint64_t value = 0;

	return companion_read(&value, address, sizeof(value)) ? value : 0;
}

uint64_t companion_vm_of(uint64_t L)
{
	const struct ljvm_constants *c = companion_constants();
	const struct ljvm_addresses *a = &companion_descriptor.addresses;
	uint64_t g = companion_ref(L + (uint64_t)c->L_glref), main_l, entry;

	if (!g)
		return 0;
	main_l = companion_ref(g + (uint64_t)c->g_mainthref);
	entry = companion_word(g + (uint64_t)(int64_t)c->g_dispatch);
	if (!main_l || companion_ref(main_l + (uint64_t)c->L_glref) != g ||
	    entry < (uintptr_t)a->vm_code || entry >= (uintptr_t)a->vm_code_end)
		return 0;
	return g;
}
