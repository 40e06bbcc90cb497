/* SPDX-License-Identifier: MIT */
/*
 * usage: reader LIBRARY SCRIPT MOMENTS. The helpers on another process, through readers. A program that runs SCRIPT is
 * interrupted at any instruction, MOMENTS times. There it asks its own helpers everything; then this one asks its own,
 * which read the other's memory: the same answers. A reader that fails now and then: the same, or a defined error.
 * Readers that lie: any answer or a defined error, after a bounded number of reads. And the same of a core file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "moments.h"

enum lie { FAILS, NOISE, FLIPS, SAME, LIES };
static const char *const lie_name[LIES] = {"fails", "noise", "flips", "same"};

/* What a helper may read of whatever memory: a bit more than all slots and sixteen VMs' traces can be. */
#define MOST_READS 2000000

struct liar {
	const struct ljvm_memory *memory; /* what is there */
	enum lie lie;
	unsigned int seed, one_in;
	uint64_t word; /* SAME: all that there is */
	unsigned long reads;
};

static struct kit kit;
static unsigned int seed = 1;

static struct {
	unsigned long kinds[LJVM_PC_TRACE + 1], answers, cores;
	unsigned long right, errors, lied_at;
	unsigned long lied[LIES], most_reads;
} counts;

/* SAME: one word everywhere. NOISE: another one each time. */
static void make_up(struct liar *liar, unsigned char *byte, size_t size)
{
	for (size_t i = 0; i < size; i += sizeof(liar->word)) {
		if (liar->lie == NOISE)
			liar->word = liar->word * UINT64_C(6364136223846793005) +
				     UINT64_C(1442695040888963407);
		memcpy(byte + i, &liar->word,
		       size - i < sizeof(liar->word) ? size - i : sizeof(liar->word));
	}
}

static int read_lies(void *context, uint64_t address, void *buffer, size_t size)
{
	struct liar *liar = context;
	unsigned char *byte = buffer;
	bool now;

	if (++liar->reads > MOST_READS)
		kit_die("a helper does not end: %s", lie_name[liar->lie]);
	if (liar->lie == SAME || liar->lie == NOISE) {
		make_up(liar, byte, size);
		return 0;
	}
	now = rand_r(&liar->seed) % liar->one_in == 0;
	if ((now && liar->lie == FAILS) ||
	    liar->memory->read(liar->memory->context, address, buffer, size) != 0)
		return -1;
	if (now)
		byte[(size_t)rand_r(&liar->seed) % size] ^= (unsigned char)rand_r(&liar->seed);
	return 0;
}

/* What is right at many places, and what is at none. */
static uint64_t any_word(const struct moment *truth)
{
	const uint64_t words[] = {truth->start.g,
				  truth->start.L,
				  truth->registers.sp,
				  truth->registers.pc,
				  0,
				  1,
				  8,
				  0x10000,
				  0x100000001,
				  UINT64_MAX,
				  0x0606060606060606,
				  UINT64_C(0x8000000000000000)};

	return words[(size_t)rand_r(&seed) % (sizeof(words) / sizeof(words[0]))];
}

/* A result of a call: what it can be at all. */
static void check_defined(unsigned int call, int result)
{
	if (result < LJVM_E_NOT_MINE || result > MOST_PLACES)
		kit_die("call %u: %d is no result", call, result);
}

/* Each call with what is right as its input. */
static void ask_liar(const struct ljvm_memory *memory, const struct moment *truth, enum lie lie)
{
	struct liar liar = {memory,
			    lie,
			    (unsigned int)rand_r(&seed),
			    1 + (unsigned int)rand_r(&seed) % 32,
			    any_word(truth),
			    0};
	struct ljvm_memory lying = {read_lies, &liar, memory->descriptor};
	struct answer answer;

	for (unsigned int i = 0; i < truth->count; i++) {
		liar.reads = 0;
		moment_call(&kit, &lying, i, truth, &answer);
		check_defined(i, answer.result);
		counts.lied[lie]++;
		if (liar.reads > counts.most_reads)
			counts.most_reads = liar.reads;
		if (lie != FAILS)
			continue;
		if (answer_equal(&answer, &truth->answer[i]))
			counts.right++;
		else if (answer.result < 0)
			counts.errors++;
		else
			kit_die("call %u: %d, though it could not be read; it is %d", i,
				answer.result, truth->answer[i].result);
	}
}

/* The other is at a moment: all is the same. */
static void check_same(const struct ljvm_memory *memory, const struct moment *truth,
		       const char *where)
{
	static struct moment here;

	memset(&here, 0, sizeof(here));
	here.registers = truth->registers;
	moment_ask(&kit, memory, &here);
	if (here.count != truth->count)
		kit_die("%s: %u answers, not %u", where, here.count, truth->count);
	for (unsigned int i = 0; i < here.count; i++)
		if (!answer_equal(&here.answer[i], &truth->answer[i]))
			kit_die("%s: call %u: %d, not %d", where, i, here.answer[i].result,
				truth->answer[i].result);
}

/* A core file of it as it is. */
static void check_core(const struct other *other, const struct moment *truth)
{
	struct ljvm_memory memory = {.descriptor = other->shared->descriptor};
	struct core core;

	if (!core_open(&core, other->pid)) {
		printf("reader: no core file, gcore cannot make one\n");
		return;
	}
	memory.read = core_read;
	memory.context = &core;
	check_same(&memory, truth, "core file");
	for (int lie = 0; lie < LIES; lie++)
		ask_liar(&memory, truth, (enum lie)lie);
	core_close(&core);
	printf("reader: %u answers from a core file are the same\n", truth->count);
}

/* While it runs: whatever it is, it is defined. */
static void ask_running(const struct ljvm_memory *memory, const struct moment *past)
{
	struct answer answer;

	for (unsigned int i = 0; i < past->count; i++) {
		moment_call(&kit, memory, i, past, &answer);
		check_defined(i, answer.result);
	}
}

/* All that is asked while the other is at a moment. Returns its kind; 0: other code. */
static int ask_at_moment(const struct ljvm_memory *memory, const struct moment *truth)
{
	int kind = truth->answer[CALL_CONTEXT].result;

	kind = kind > 0 ? kind : 0;
	counts.kinds[kind]++;
	counts.answers += truth->count;
	check_same(memory, truth, "another process");
	ask_liar(memory, truth, FAILS);
	/* A list without end is read for long. */
	if (kind || counts.kinds[0] % 16 == 0)
		ask_liar(memory, truth, (enum lie)(1 + counts.lied_at++ % (LIES - 1)));
	return kind;
}

/* Not before both kinds were seen, however seldom the VM's code is met. */
static bool enough(unsigned long moments, unsigned long wanted)
{
	bool seen = counts.kinds[LJVM_PC_INTERPRETER] &&
		    (!kit.constants->jit || counts.kinds[LJVM_PC_TRACE]);

	return moments >= 100 * wanted || (moments >= wanted && seen && counts.cores);
}

static void report(unsigned long moments)
{
	printf("reader: %lu moments (%lu in the interpreter, %lu in traces), %lu answers, the same "
	       "as from inside; failing reads: %lu right, %lu errors; "
	       "lies: %lu noise, %lu flips, %lu same; at most %lu reads a call\n",
	       moments, counts.kinds[LJVM_PC_INTERPRETER], counts.kinds[LJVM_PC_TRACE],
	       counts.answers, counts.right, counts.errors, counts.lied[NOISE], counts.lied[FLIPS],
	       counts.lied[SAME], counts.most_reads);
	if (!counts.kinds[LJVM_PC_INTERPRETER] ||
	    (kit.constants->jit && !counts.kinds[LJVM_PC_TRACE]) || !counts.right || !counts.errors)
		kit_die("never seen: the interpreter, a trace, a right answer, or an error");
}

int main(int argc, char **argv)
{
	static struct moment truth;
	struct ljvm_memory memory;
	unsigned long wanted, n;
	struct other other;

	if (argc != 4)
		kit_die("usage: reader LIBRARY SCRIPT MOMENTS");
	other_run_if_child(argv[1], argv[2]);
	wanted = strtoul(argv[3], NULL, 10);
	kit_open(&kit, argv[1]);
	other_start(&other, argv, &memory);
	for (n = 0; !enough(n, wanted); n++) {
		other_wait(&other);
		truth = other.shared->moment;
		if (ask_at_moment(&memory, &truth) && n >= wanted / 2 && !counts.cores) {
			check_core(&other, &truth);
			counts.cores++;
		}
		other_go_on(&other);
		ask_running(&memory, &truth);
	}
	other_end(&other);
	report(n);
	return 0;
}
