/* SPDX-License-Identifier: MIT */
/*
 * usage: usdt FILE COMMAND... Attaches to all probes of FILE, a LuaJIT with the VM descriptor, by libbpf; runs the command; prints a
 * line for each hit, in order: its name and six arguments in hexadecimal. Exit 77: this is not possible here.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bpf/libbpf.h>
#include <moonspy/vm_descriptor.h>

#include "usdt.h"
#include "usdt.skel.h"

#define NAME(name, arguments, when) #name,
static const char *const names[] = {LJVM_PROBES(NAME)};
#undef NAME

#define PROBES (sizeof(names) / sizeof(names[0]))

static int on_hit(void *context, void *data, size_t size)
{
	const struct usdt_hit *hit = data;

	(void)context;
	if (size < sizeof(*hit) || hit->probe >= PROBES)
		return -EINVAL;
	printf("probe %s", names[hit->probe]);
	for (int i = 0; i < USDT_MOST_ARGS; i++)
		printf(" %llx", hit->arg[i]);
	putchar('\n');
	return 0;
}

static int attach(struct usdt_bpf *bpf, struct bpf_link **link, const char *file)
{
	LIBBPF_OPTS(bpf_usdt_opts, options);

	for (size_t i = 0; i < PROBES; i++) {
		options.usdt_cookie = i;
		link[i] = bpf_program__attach_usdt(bpf->progs.on_hit, -1, file, "luajit", names[i],
						   &options);
		if (!link[i]) {
			fprintf(stderr, "%s: %s\n", names[i], strerror(errno));
			return -1;
		}
	}
	return 0;
}

static int run(char **command)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		execvp(command[0], command);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	struct bpf_link *link[PROBES] = {NULL};
	struct usdt_bpf *bpf = argc > 2 ? usdt_bpf__open_and_load() : NULL;
	struct ring_buffer *ring;
	int status = 1;

	if (argc < 3)
		return 2;
	if (!bpf) {
		fprintf(stderr, "SKIP: BPF cannot be loaded: %s\n", strerror(errno));
		return 77;
	}
	ring = ring_buffer__new(bpf_map__fd(bpf->maps.hits), on_hit, NULL, NULL);
	if (ring && attach(bpf, link, argv[1]) == 0)
		status = run(argv + 2);
	if (status == 0 && (ring_buffer__consume(ring) < 0 || bpf->bss->lost)) {
		fprintf(stderr, "%llu hits lost, or hits of another kind\n", bpf->bss->lost);
		status = 1;
	}
	for (size_t i = 0; i < PROBES; i++)
		bpf_link__destroy(link[i]);
	ring_buffer__free(ring);
	usdt_bpf__destroy(bpf);
	return status;
}
