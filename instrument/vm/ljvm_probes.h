/* SPDX-License-Identifier: MIT */
/*
 * Probes of the VM descriptor (LJVM_PROBES in ljvm_descriptor.h): a nop each, and a note that says where it is and in
 * which registers its arguments are. The companion of a LuaJIT that was built without them has these too.
 */
#ifndef LJVM_PROBES_H
#define LJVM_PROBES_H

#ifndef LJVM_NO_PROBES
#define LJVM_NOTE(name, arguments) \
	"990: nop\n" \
	".ifndef _.stapsdt.base\n" \
	".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n" \
	".weak _.stapsdt.base\n" \
	".hidden _.stapsdt.base\n" \
	"_.stapsdt.base: .space 1\n" \
	".size _.stapsdt.base, 1\n" \
	".popsection\n" \
	".endif\n" \
	".pushsection .note.stapsdt, \"\", \"note\"\n" \
	".balign 4\n" \
	".4byte 992f - 991f, 994f - 993f, 3\n" \
	"991: .asciz \"stapsdt\"\n" \
	"992: .balign 4\n" \
	"993: .8byte 990b, _.stapsdt.base, 0\n" \
	".asciz \"luajit\"\n" \
	".asciz \"" name "\"\n" \
	".asciz \"" arguments "\"\n" \
	"994: .balign 4\n" \
	".popsection\n"
#define LJVM_ARG(x) "r"((unsigned long)(x))
#define LJVM_PROBE2(name, a, b) \
	__asm__ __volatile__(LJVM_NOTE(name, "8@%0 8@%1") : : LJVM_ARG(a), LJVM_ARG(b) : "memory")
#define LJVM_PROBE3(name, a, b, c) \
	__asm__ __volatile__(LJVM_NOTE(name, "8@%0 8@%1 8@%2") : : LJVM_ARG(a), LJVM_ARG(b), LJVM_ARG(c) : "memory")
#define LJVM_PROBE5(name, a, b, c, d, e) \
	__asm__ __volatile__(LJVM_NOTE(name, "8@%0 8@%1 8@%2 8@%3 8@%4") \
			     : \
			     : LJVM_ARG(a), LJVM_ARG(b), LJVM_ARG(c), LJVM_ARG(d), LJVM_ARG(e) \
			     : "memory")
#define LJVM_PROBE6(name, a, b, c, d, e, f) \
	__asm__ __volatile__(LJVM_NOTE(name, "8@%0 8@%1 8@%2 8@%3 8@%4 8@%5") \
			     : \
			     : LJVM_ARG(a), LJVM_ARG(b), LJVM_ARG(c), LJVM_ARG(d), LJVM_ARG(e), LJVM_ARG(f) \
			     : "memory")
#else
#define LJVM_PROBE2(name, a, b) ((void)0)
#define LJVM_PROBE3(name, a, b, c) ((void)0)
#define LJVM_PROBE5(name, a, b, c, d, e) ((void)0)
#define LJVM_PROBE6(name, a, b, c, d, e, f) ((void)0)
#endif

#endif
