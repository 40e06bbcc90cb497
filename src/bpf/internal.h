/* SPDX-License-Identifier: MIT */
/* The loader's own state; for the files of this folder. */
#ifndef MSP_BPF_INTERNAL_H
#define MSP_BPF_INTERNAL_H

#include "bpf/sampler.h"
#include "bpf/tables.h"
#include "sampler.skel.h"

#define MSP_RING_SIZE (8u << 20)

struct msp_sampler {
	struct sampler_bpf *skel;
	struct ring_buffer *ring;
	const struct msp_sampler_handlers *handlers;
	uint32_t rate;
	bool clock_chosen, hardware;
	uint64_t clock_offset; /* msp_clock_offset() */
	int stats_fd;

	struct bpf_link **links;
	size_t link_count, link_room;
	struct sampler_apart {
		pid_t tid;
		int fd;
	} * apart; /* msp_sampler_keep_apart() */
	size_t apart_count, apart_room;

	struct msp_tables tables;
};

/*
 * Path of BTF with no more than the kernel's types that the program uses; it is made if it is not
 * there. False: there is none, libbpf is to look at the kernel's.
 */
bool sampler_kernel_btf(const char *dir, char *path, size_t size);
int sampler_on_record(void *ctx, void *data, size_t size);

/* reason.c: what libbpf says goes into error[], the first warning of it, until error is NULL. */
void sampler_listen(char *error, size_t size);
void sampler_listen_again(void); /* what it has said is void */
/* The error code for an errno. */
int sampler_error(int err);
/* The reason in words: libbpf's own, in error[], but for rights it has only guesses. */
void sampler_explain(int err, char *error, size_t size);

#endif
