/* SPDX-License-Identifier: MIT */
/* A probe's hit, as the BPF program sends it. */
#ifndef KIT_USDT_H
#define KIT_USDT_H

#define USDT_MOST_ARGS 6

struct usdt_hit {
	unsigned long long probe; /* index in LJVM_PROBES */
	unsigned long long arg[USDT_MOST_ARGS];
};

#endif
