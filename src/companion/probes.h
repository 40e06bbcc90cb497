/* SPDX-License-Identifier: MIT */
/*
 * Probes (LJVM_PROBES in moonspy/vm_descriptor.h): a nop each, and a note, as USDT has it, that says where it is and in
 * which registers its arguments are.
 */
#ifndef MSP_COMPANION_PROBES_H
#define MSP_COMPANION_PROBES_H

#define PROBE_NOTE(name, arguments) \
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
#define PROBE_ARG(x) "r"((uint64_t)(x))
#define PROBE2(name, a, b) \
	__asm__ __volatile__(PROBE_NOTE(name, "8@%0 8@%1") : : PROBE_ARG(a), PROBE_ARG(b) : "memory")
#define PROBE5(name, a, b, c, d, e) \
	__asm__ __volatile__(PROBE_NOTE(name, "8@%0 8@%1 8@%2 8@%3 8@%4") \
		: : PROBE_ARG(a), PROBE_ARG(b), PROBE_ARG(c), PROBE_ARG(d), PROBE_ARG(e) : "memory")
#define PROBE6(name, a, b, c, d, e, f) \
	__asm__ __volatile__(PROBE_NOTE(name, "8@%0 8@%1 8@%2 8@%3 8@%4 8@%5") \
		: : PROBE_ARG(a), PROBE_ARG(b), PROBE_ARG(c), PROBE_ARG(d), PROBE_ARG(e), PROBE_ARG(f) : "memory")

#endif
