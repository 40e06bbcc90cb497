/* SPDX-License-Identifier: MIT */
#include "qemu_guest.h"

#include <elf.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "moonspy/moonspy.h"
#include "unwind/tables.h"

#define REGISTERS 33 /* x0..x30, sp, pc */
#define MAX_HEADERS 32
/* Above that are the emulator's own mappings. */
#define GUEST_END (1ULL << 46)

static void sleep_ms(unsigned int ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000l};

	nanosleep(&time, NULL);
}

/* ---- The gdb server's packets: $DATA#SUM, acknowledged by + ---- */

static bool send_all(struct qemu_guest *g, const char *bytes, size_t size)
{
	return send(g->socket, bytes, size, MSG_NOSIGNAL) == (ssize_t)size;
}

static bool send_packet(struct qemu_guest *g, const char *data)
{
	char packet[128];
	uint8_t sum = 0;

	for (const char *c = data; *c; c++)
		sum = (uint8_t)(sum + (uint8_t)*c);
	snprintf(packet, sizeof(packet), "$%s#%02x", data, sum);
	return send_all(g, packet, strlen(packet));
}

/* The next packet's data, in g->out. */
static bool receive(struct qemu_guest *g)
{
	for (;;) {
		char *start = memchr(g->in, '$', g->in_size), *end;
		ssize_t got;

		end = start ? memchr(start, '#', g->in_size - (size_t)(start - g->in)) : NULL;
		if (end && end + 3 <= g->in + g->in_size) {
			size_t n = (size_t)(end - start - 1);

			memcpy(g->out, start + 1, n);
			g->out[n] = 0;
			g->in_size -= (size_t)(end + 3 - g->in);
			memmove(g->in, end + 3, g->in_size);
			return send_all(g, "+", 1);
		}
		if (g->in_size == sizeof(g->in))
			return false;
		got = recv(g->socket, g->in + g->in_size, sizeof(g->in) - g->in_size, 0);
		if (got <= 0)
			return false;
		g->in_size += (size_t)got;
	}
}

static bool ask(struct qemu_guest *g, const char *data)
{
	return send_packet(g, data) && receive(g);
}

/* It has stopped (T, S), or ended (W, X). */
static bool stopped(struct qemu_guest *g)
{
	g->ended = g->ended || (g->out[0] != 'T' && g->out[0] != 'S');
	return !g->ended;
}

static unsigned int digit(char c)
{
	return (unsigned int)(c <= '9' ? c - '0' : c - 'a' + 10);
}

bool qemu_guest_registers(struct qemu_guest *g, struct msp_registers *out)
{
	uint64_t word[REGISTERS];

	if (!ask(g, "g") || strlen(g->out) < REGISTERS * 16)
		return false;
	for (unsigned int i = 0; i < sizeof(word); i++)
		((uint8_t *)word)[i] =
			(uint8_t)(digit(g->out[2 * i]) << 4 | digit(g->out[2 * i + 1]));
	memset(out, 0, sizeof(*out));
	for (int i = 0; i < MSP_REG_COUNT; i++)
		out->reg[i] = word[i];
	out->pc = word[REGISTERS - 1];
	return true;
}

bool qemu_guest_step(struct qemu_guest *g)
{
	return !g->ended && ask(g, "s") && stopped(g);
}

bool qemu_guest_run(struct qemu_guest *g, unsigned int ms)
{
	if (g->ended || !send_packet(g, "c"))
		return false;
	sleep_ms(ms);
	/* The server does not listen meanwhile; a signal that comes is its own, and goes no further. */
	kill(g->pid, SIGINT);
	return receive(g) && stopped(g);
}

/* ---- Its mappings: without the emulator's, and with the rights of the guest ---- */

/* Is the part of a file from offset on code? The emulator maps the guest's code without that right. */
static bool is_code(const char *path, uint64_t offset, uint64_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf64_Ehdr header;
	Elf64_Phdr ph[MAX_HEADERS];
	bool code = false;

	if (fd < 0)
		return false;
	if (read(fd, &header, sizeof(header)) == sizeof(header) && header.e_phnum <= MAX_HEADERS &&
	    pread(fd, ph, header.e_phnum * sizeof(*ph), (off_t)header.e_phoff) ==
		    (ssize_t)(header.e_phnum * sizeof(*ph))) {
		for (int i = 0; i < header.e_phnum; i++)
			code |= ph[i].p_type == PT_LOAD && ph[i].p_flags & PF_X &&
				offset < ph[i].p_offset + ph[i].p_filesz &&
				ph[i].p_offset < offset + size;
	}
	close(fd);
	return code;
}

static int guest_maps(void *ctx, struct msp_maps *out)
{
	struct qemu_guest *g = ctx;
	size_t kept = 0;
	int rc = msp_process_maps(g->process, out);

	for (size_t i = 0; rc == 0 && i < out->count; i++) {
		struct msp_map *map = &out->map[i];

		if (map->start >= GUEST_END || (map->name && strcmp(map->name, g->emulator) == 0))
			continue;
		if (map->name && map->name[0] == '/' && !(map->prot & PROT_WRITE) &&
		    is_code(map->name, map->offset, map->end - map->start))
			map->prot |= PROT_EXEC;
		out->map[kept++] = *map;
	}
	out->count = rc == 0 ? kept : out->count;
	return rc;
}

static int guest_open_map(void *ctx, const struct msp_map *map, bool *partial)
{
	const struct qemu_guest *g = ctx;
	const struct msp_host *host = msp_process_host(g->process);

	return host->open_map(host->ctx, map, partial);
}

static void guest_present(void *ctx, uint64_t start, uint64_t end,
			  void (*each)(void *arg, uint64_t start, uint64_t end), void *arg)
{
	const struct qemu_guest *g = ctx;
	const struct msp_host *host = msp_process_host(g->process);

	host->present(host->ctx, start, end, each, arg);
}

/* ---- Starting and ending ---- */

static void exec_emulator(struct qemu_guest *g, const char *emulator, const char *root,
			  char *const argv[])
{
	char *args[64] = {(char *)emulator, "-g", g->path, "-L", (char *)root};
	int null = open("/dev/null", O_WRONLY), n = 5;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sched_setaffinity(0, sizeof(g->cpus), &g->cpus);
	if (null >= 0) {
		dup2(null, 1);
		dup2(null, 2);
	}
	while (*argv && n < 63)
		args[n++] = *argv++;
	args[n] = NULL;
	execvp(emulator, args);
	_exit(127);
}

#define CONNECT_TRIES 500
static bool connect_guest(struct qemu_guest *g)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};

	strcpy(to.sun_path, g->path);
	g->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	for (int i = 0; i < CONNECT_TRIES; i++) {
		if (connect(g->socket, (struct sockaddr *)&to, sizeof(to)) == 0)
			return true;
		if (waitpid(g->pid, NULL, WNOHANG) == g->pid)
			break;
		sleep_ms(20);
	}
	g->ended = true;
	return false;
}

static void read_emulator(struct qemu_guest *g)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%d/exe", (int)g->pid);
	n = readlink(link, g->emulator, sizeof(g->emulator) - 1);
	g->emulator[n > 0 ? n : 0] = 0;
}

int qemu_guest_start(struct qemu_guest *g, const char *emulator, const char *root,
		     char *const argv[])
{
	int rc;

	memset(g, 0, sizeof(*g));
	g->socket = -1;
	snprintf(g->path, sizeof(g->path), "%s/guest-%d",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
	/* Both on one processor: an answer is then a switch, not a wake-up. */
	CPU_ZERO(&g->cpus);
	CPU_SET(sched_getcpu(), &g->cpus);
	sched_setaffinity(0, sizeof(g->cpus), &g->cpus);
	g->pid = fork();
	if (g->pid < 0)
		return MSP_E_NOMEM;
	if (g->pid == 0)
		exec_emulator(g, emulator, root, argv);
	if (!connect_guest(g) || !ask(g, "?") || !stopped(g))
		return MSP_E_GONE;
	read_emulator(g);
	rc = msp_process_open(g->pid, &g->process);
	if (rc != 0)
		return rc;
	g->host = *msp_process_host(g->process);
	g->host.ctx = g;
	g->host.arch = MSP_ARCH_ARM64;
	g->host.maps = guest_maps;
	g->host.open_map = guest_open_map;
	g->host.present = guest_present;
	return 0;
}

void qemu_guest_end(struct qemu_guest *g)
{
	if (g->pid > 0) {
		kill(g->pid, SIGKILL);
		waitpid(g->pid, NULL, 0);
	}
	msp_process_close(g->process);
	if (g->socket >= 0)
		close(g->socket);
	unlink(g->path);
}
