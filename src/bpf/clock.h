/* SPDX-License-Identifier: MIT */
/* The kernel's times, in a process whose clocks are set otherwise (a time namespace). */
#ifndef BPF_CLOCK_H
#define BPF_CLOCK_H

#include <stdint.h>

/*
 * What is to be added to a time of the kernel's monotonic clock, which events and BPF have, for the
 * time that CLOCK_MONOTONIC says here: ns, modulo 2^64. 0 without time namespaces.
 */
uint64_t msp_clock_offset(void);

#endif
