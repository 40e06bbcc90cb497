/* SPDX-License-Identifier: MIT */
/* What instructions of traces tell on x86-64: as LuaJIT makes them (lj_asm_x86.h). */
#include "luajit_help.h"

#include "luajit/trace_code.h"

#define G 0x40001000ull
#define CODE 0x40100000ull
#define JIT_BASE 0x180
#define VMSTATE 0x190
#define MAX 64

static struct msp_trace_ins ins[MAX];

static bool dualnum; /* of the VM that is next */

static void decode(bool gc64, uint32_t loop, const char *code, size_t size)
{
	struct msp_lj_layout y = {.arch = MSP_ARCH_X86_64,
				  .gc64 = gc64,
				  .fr2 = gc64,
				  .dualnum = dualnum,
				  .g_cur_L = 0x170,
				  .g_jit_base = JIT_BASE,
				  .g_vmstate = VMSTATE};
	bool all;

	memset(ins, 0, sizeof(ins));
	assert_true(msp_trace_code_read(&y, G, (const uint8_t *)code, size, CODE, loop, ins, MAX,
					&all) > 0);
	assert_true(all);
}
#define DECODE(gc64, loop, code) decode(gc64, loop, code, sizeof(code) - 1)

/* A comparison and its jumps, a copy and what computes with it, conversions. */
static void test_joined(void **state)
{
	(void)state;
	DECODE(true, 0,
	       "\x83\xf9\x50"		  /* cmp ecx, 0x50 */
	       "\x0f\x86\xfa\x01\x00\x00" /* jbe .+0x200 */
	       "\x66\x0f\x2e\xcb"	  /* ucomisd xmm1, xmm3 */
	       "\x0f\x85\xfa\x01\x00\x00" /* jne .+0x200 */
	       "\x0f\x8a\xfa\x01\x00\x00" /* jp .+0x200 */
	       "\x0f\x85\xfa\x01\x00\x00" /* jne .+0x200: of another one */
	       "\x0f\x28\xfd"		  /* movaps xmm7, xmm5 */
	       "\xf2\x0f\x59\xff"	  /* mulsd xmm7, xmm7 */
	       "\x0f\x28\xf5"		  /* movaps xmm6, xmm5 */
	       "\xf2\x0f\x58\xfd"	  /* addsd xmm7, xmm5: not what was copied */
	       "\x0f\x57\xff"		  /* xorps xmm7, xmm7 */
	       "\xf2\x0f\x2a\xfd"	  /* cvtsi2sd xmm7, ebp */
	       "\x83\xc5\x01"		  /* add ebp, 1 */
	       "\x0f\x80\xfa\x01\x00\x00" /* jo .+0x200 */
	       "\x89\xc3"		  /* mov ebx, eax */
	       "\x29\xcb"		  /* sub ebx, ecx */
	       "\xe8\xfb\x01\x00\x00"	  /* call .+0x200 */
	       "\x0f\x28\xc8"		  /* movaps xmm1, xmm0: its result */
	       "\xf2\x0f\x58\xca" /* addsd xmm1, xmm2 */);
	assert_int_equal(ins[1].joined, MSP_JOINED);
	assert_int_equal(ins[3].joined, MSP_JOINED);
	assert_int_equal(ins[4].joined, MSP_JOINED);
	assert_int_equal(ins[7].joined, MSP_JOINED);
	assert_int_equal(ins[11].joined, MSP_JOINED);
	assert_int_equal(ins[13].joined, MSP_JOINED);
	assert_int_equal(ins[15].joined, MSP_JOINED_NUMBERS);
	assert_int_equal(ins[2].joined, MSP_JOINED_NOT);
	assert_int_equal(ins[5].joined, MSP_JOINED_NOT);
	assert_int_equal(ins[6].joined, MSP_JOINED_NOT);
	assert_int_equal(ins[8].joined, MSP_JOINED_NOT);
	assert_int_equal(ins[9].joined, MSP_JOINED_NOT);
	assert_int_equal(ins[10].joined, MSP_JOINED_NOT);
	assert_int_equal(ins[12].joined, MSP_JOINED_NOT);
	assert_int_equal(ins[14].joined, MSP_JOINED_NOT);
	assert_int_equal(ins[16].joined, MSP_JOINED_NOT);
	assert_int_equal(ins[17].joined, MSP_JOINED_NOT);
	assert_int_equal(ins[18].joined, MSP_JOINED_NOT);
}

/* To an integer and back, which C types' numbers may be by the program. */
static void test_toint(void **state)
{
	(void)state;
	DECODE(true, 0,
	       "\xf2\x0f\x2c\xc7"	  /* cvttsd2si eax, xmm7 */
	       "\x0f\x57\xf6"		  /* xorps xmm6, xmm6 */
	       "\xf2\x0f\x2a\xf0"	  /* cvtsi2sd xmm6, eax */
	       "\x66\x0f\x2e\xfe"	  /* ucomisd xmm7, xmm6 */
	       "\x0f\x85\xfa\x01\x00\x00" /* jne .+0x200 */
	       "\x0f\x8a\xfa\x01\x00\x00" /* jp .+0x200 */
	       "\xf2\x0f\x2c\xc7"	  /* cvttsd2si eax, xmm7 */
	       "\x0f\x57\xf6"		  /* xorps xmm6, xmm6 */
	       "\xf2\x0f\x2a\xf3"	  /* cvtsi2sd xmm6, ebx: another one */
	       "\x66\x0f\x2e\xfe" /* ucomisd xmm7, xmm6 */);
	assert_int_equal(ins[1].joined, MSP_JOINED_NUMBERS);
	assert_int_equal(ins[2].joined, MSP_JOINED);
	assert_int_equal(ins[3].joined, MSP_JOINED_NUMBERS);
	assert_int_equal(ins[7].joined, MSP_JOINED_NOT);
	assert_int_equal(ins[9].joined, MSP_JOINED_NOT);
}

/* Where numbers may be integers anyway, to make one does not tell what it is for. */
static void test_dualnum(void **state)
{
	(void)state;
	DECODE(true, 0, "\xf2\x0f\x2c\xc7" /* cvttsd2si eax, xmm7 */);
	assert_int_equal(ins[0].does, MSP_DOES_CONVERT | MSP_DOES_TOINT);
	dualnum = true;
	DECODE(true, 0, "\xf2\x0f\x2c\xc7");
	dualnum = false;
	assert_int_equal(ins[0].does, MSP_DOES_CONVERT);
}

/* A type is looked at for the value that is loaded next. */
static void test_loads(void **state)
{
	(void)state;
	DECODE(false, 0,
	       "\x83\x7c\xe9\x04\xf2"	  /* cmp dword [rcx+rbp*8+4], -14 */
	       "\x0f\x83\xfa\x01\x00\x00" /* jae .+0x200 */
	       "\xf2\x0f\x10\x1c\xe9"	  /* movsd xmm3, qword [rcx+rbp*8] */
	       "\x83\x7b\x0c\xf4"	  /* cmp dword [rbx+12], -12 */
	       "\x0f\x85\xfa\x01\x00\x00" /* jne .+0x200 */
	       "\x8b\x5b\x10"		  /* mov ebx, dword [rbx+16]: another one */
	       "\xf2\x0f\x11\x5c\x24\x08" /* movsd qword [rsp+8], xmm3: not what was loaded last */
	       "\xf2\x0f\x58\xda"	  /* addsd xmm3, xmm2 */
	       "\xf2\x0f\x11\x5c\x24\x08" /* movsd qword [rsp+8], xmm3 */);
	assert_int_equal(ins[2].joined, MSP_JOINED);
	assert_int_equal(ins[5].joined, MSP_JOINED_NOT);
	assert_int_equal(ins[6].joined, MSP_JOINED_NOT);
	assert_int_equal(ins[8].joined, MSP_JOINED_SPILL);
}

/* With GC64 the value is turned to look at its type; without mov and ror. */
static void test_wide_loads(void **state)
{
	(void)state;
	DECODE(true, 0,
	       "\xc4\x63\xfb\xf0\x62\x08\x2f" /* rorx r12, qword [rdx+8], 47 */
	       "\x66\x41\x83\xfc\xf7"	      /* cmp r12w, -9 */
	       "\x0f\x85\xfa\x01\x00\x00"     /* jne .+0x200 */
	       "\x49\xc1\xec\x11"	      /* shr r12, 17 */
	       "\x48\x8b\x19"		      /* mov rbx, qword [rcx] */
	       "\x48\xc1\xcb\x2f"	      /* ror rbx, 47 */
	       "\x66\x83\xfb\xf4"	      /* cmp bx, -12 */
	       "\x0f\x85\xfa\x01\x00\x00"     /* jne .+0x200 */
	       "\x48\xc1\xeb\x11"	      /* shr rbx, 17 */
	       "\x48\xc1\xe9\x11" /* shr rcx, 17: another one */);
	assert_int_equal(ins[1].joined, MSP_JOINED);
	assert_int_equal(ins[2].joined, MSP_JOINED);
	assert_int_equal(ins[3].joined, MSP_JOINED);
	assert_int_equal(ins[5].joined, MSP_JOINED);
	assert_int_equal(ins[6].joined, MSP_JOINED);
	assert_int_equal(ins[7].joined, MSP_JOINED);
	assert_int_equal(ins[8].joined, MSP_JOINED);
	assert_int_equal(ins[4].joined, MSP_JOINED_NOT);
	assert_int_equal(ins[9].joined, MSP_JOINED_NOT);
	assert_int_equal(ins[0].tells, MSP_TELLS_SLOT | MSP_TELLS_ENTRY);
	assert_int_equal(ins[0].slot, 1);
}

/* The size of a table's hash, its nodes, the key in one: a string with its tag. */
static void test_keys(void **state)
{
	(void)state;
	DECODE(false, 0,
	       "\x83\x7d\x1c\x03"			  /* cmp dword [rbp+28], 3 */
	       "\x0f\x85\xfa\x01\x00\x00"		  /* jne .+0x200 */
	       "\x8b\x5d\x14"				  /* mov ebx, dword [rbp+20] */
	       "\x48\xbf\x10\xea\xdc\x40\xfb\xff\xff\xff" /* movabs rdi, 0xfffffffb40dcea10 */
	       "\x48\x3b\x7b\x08"			  /* cmp rdi, qword [rbx+8] */
	       "\x0f\x85\xfa\x01\x00\x00"		  /* jne .+0x200 */
	       "\x83\x7d\x1c\x03"			  /* cmp dword [rbp+28], 3 */
	       "\x0f\x87\xfa\x01\x00\x00"		  /* ja .+0x200: not whether it is that */
	       "\x83\x7d\x1c\xf7"			  /* cmp dword [rbp+28], -9 */
	       "\x0f\x85\xfa\x01\x00\x00"		  /* jne .+0x200: a type */
	       "\x83\x7d\x1c\x00"			  /* cmp dword [rbp+28], 0 */
	       "\x0f\x85\xfa\x01\x00\x00"		  /* jne .+0x200 */
	       "\x8b\x5d\x14" /* mov ebx, dword [rbp+20]: of any access */);
	for (int i = 0; i < 2; i++)
		assert_true(ins[i].does & MSP_DOES_KEY);
	assert_int_equal(ins[4].key, 0x40dcea10);
	assert_int_equal(ins[1].joined, MSP_JOINED);
	assert_int_equal(ins[2].joined, MSP_JOINED);
	assert_int_equal(ins[3].joined, MSP_JOINED);
	assert_int_equal(ins[4].joined, MSP_JOINED);
	assert_int_equal(ins[5].joined, MSP_JOINED);
	assert_false(ins[6].does & MSP_DOES_KEY);
	assert_false(ins[8].does & MSP_DOES_KEY);
	assert_true(ins[10].does & MSP_DOES_KEY);
	assert_int_equal(ins[12].joined, MSP_JOINED_NOT);
}

/* Conversion for bit operations, order of numbers; numbers of which none is constant. */
static void test_numbers(void **state)
{
	(void)state;
	DECODE(false, 0,
	       "\xf2\x0f\x10\x04\x25\x00\x20\x00\x40" /* movsd xmm0, qword [0x40002000]: a constant */
	       "\xf2\x0f\x10\x09"		      /* movsd xmm1, qword [rcx] */
	       "\xf2\x0f\x58\xc8"		      /* addsd xmm1, xmm0 */
	       "\x66\x0f\x7e\xcd"		      /* movd ebp, xmm1 */
	       "\x66\x0f\x2e\xc8"		      /* ucomisd xmm1, xmm0 */
	       "\x0f\x86\xfa\x01\x00\x00"	      /* jbe .+0x200 */
	       "\x66\x0f\x2e\xc8"		      /* ucomisd xmm1, xmm0 */
	       "\x0f\x85\xfa\x01\x00\x00"	      /* jne .+0x200 */
	       "\xf2\x0f\x59\x49\x08"		      /* mulsd xmm1, qword [rcx+8] */
	       "\xf2\x0f\x59\x0c\x25\x00\x20\x00\x40" /* mulsd xmm1, qword [0x40002000] */
	       "\x0f\x28\xd0"			      /* movaps xmm2, xmm0 */
	       "\xf2\x0f\x58\xd1"		      /* addsd xmm2, xmm1 */
	       "\xf2\x0f\x58\xd1"		      /* addsd xmm2, xmm1 */
	       "\xe8\xfb\x01\x00\x00"		      /* call .+0x200 */
	       "\xf2\x0f\x58\xd1" /* addsd xmm2, xmm1 */);
	assert_int_equal(ins[2].tells, 0);
	assert_int_equal(ins[3].tells, MSP_TELLS_TOBIT);
	assert_int_equal(ins[3].joined, MSP_JOINED);
	assert_int_equal(ins[5].tells, MSP_TELLS_ORDER);
	assert_int_equal(ins[7].tells, 0);
	assert_int_equal(ins[8].tells, MSP_TELLS_VARIABLES);
	assert_int_equal(ins[9].tells, 0);
	assert_int_equal(ins[11].tells, 0);
	assert_int_equal(ins[12].tells, MSP_TELLS_VARIABLES);
	assert_int_equal(ins[14].tells, 0);
}

/* The base that the trace has begun with, a copy of it, and where it is loaded again. */
static void test_base(void **state)
{
	(void)state;
	DECODE(false, 0,
	       "\xf2\x0f\x10\x42\x10"	      /* movsd xmm0, qword [rdx+16] */
	       "\x89\xd7"		      /* mov edi, edx */
	       "\x83\x7f\x24\xf2"	      /* cmp dword [rdi+36], -14 */
	       "\x83\x7f\x20\x05"	      /* cmp dword [rdi+32], 5: no type */
	       "\xf2\x0f\x10\x04\xc7"	      /* movsd xmm0, qword [rdi+rax*8]: with an index */
	       "\xf2\x0f\x58\x42\x10"	      /* addsd xmm0, qword [rdx+16]: an operand */
	       "\x89\xc7"		      /* mov edi, eax */
	       "\x8b\x5f\x08"		      /* mov ebx, dword [rdi+8]: no base any more */
	       "\xe8\xfb\x01\x00\x00"	      /* call .+0x200 */
	       "\x8b\x5a\x08"		      /* mov ebx, dword [rdx+8]: nor that */
	       "\x8b\x0c\x25\x80\x11\x00\x40" /* mov ecx, dword [0x40001180] */
	       "\x8b\x59\x08"		      /* mov ebx, dword [rcx+8] */
	       "\x8b\x04\x25\x00\x30\x00\x40" /* mov eax, dword [0x40003000] */
	       "\x29\xc8"		      /* sub eax, ecx */
	       "\x83\xf8\x50"		      /* cmp eax, 0x50 */
	       "\x0f\x86\xfa\x01\x00\x00"     /* jbe .+0x200 */
	       "\x83\xc1\xe8"		      /* add ecx, -0x18 */
	       "\x89\x0c\x25\x80\x11\x00\x40" /* mov dword [0x40001180], ecx */);
	assert_int_equal(ins[0].tells, MSP_TELLS_SLOT | MSP_TELLS_ENTRY);
	assert_int_equal(ins[0].slot, 2);
	assert_int_equal(ins[2].tells, MSP_TELLS_SLOT | MSP_TELLS_ENTRY);
	assert_int_equal(ins[2].slot, 4);
	assert_false(ins[3].tells & MSP_TELLS_SLOT);
	assert_false(ins[4].tells & MSP_TELLS_SLOT);
	assert_false(ins[5].tells & MSP_TELLS_SLOT);
	assert_false(ins[7].tells & MSP_TELLS_SLOT);
	assert_false(ins[9].tells & MSP_TELLS_SLOT);
	assert_int_equal(ins[11].tells, MSP_TELLS_SLOT);
	assert_int_equal(ins[12].place, 0x40003000);
	assert_int_equal(ins[13].joined, MSP_JOINED);
	assert_int_equal(ins[14].joined, MSP_JOINED);
	assert_int_equal(ins[15].joined, MSP_JOINED);
	assert_int_equal(ins[17].tells, MSP_TELLS_RETURN);
}

/* The head ends with the store of the trace's number, what is spilled, and a copy of the base. */
static void test_head(void **state)
{
	(void)state;
	DECODE(false, 0,
	       "\xc7\x04\x25\x90\x11\x00\x40\x03\x00\x00\x00" /* mov dword [0x40001190], 3 */
	       "\x89\x5c\x24\x08"			      /* mov dword [rsp+8], ebx */
	       "\x89\xfa"				      /* mov edx, edi */
	       "\x83\xc5\x01"				      /* add ebp, 1 */
	       "\x89\xfa" /* mov edx, edi */);
	for (int i = 0; i < 2; i++)
		assert_int_equal(ins[i].tells, MSP_TELLS_HEAD);
	assert_int_equal(ins[2].tells, MSP_TELLS_MOVED);
	assert_int_equal(ins[3].tells, 0);
	assert_int_equal(ins[4].tells, 0);
}

static void test_head_computes(void **state)
{
	(void)state;
	DECODE(false, 0,
	       "\xc7\x04\x25\x90\x11\x00\x40\x03\x00\x00\x00" /* mov dword [0x40001190], 3 */
	       "\x89\xfa"				      /* mov edx, edi */
	       "\x83\xc2\x01" /* add edx, 1: which was copied for that */);
	assert_int_equal(ins[0].tells, MSP_TELLS_HEAD);
	assert_int_equal(ins[1].tells, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_joined),	   cmocka_unit_test(test_toint),
		cmocka_unit_test(test_dualnum),	   cmocka_unit_test(test_loads),
		cmocka_unit_test(test_wide_loads), cmocka_unit_test(test_keys),
		cmocka_unit_test(test_numbers),	   cmocka_unit_test(test_base),
		cmocka_unit_test(test_head),	   cmocka_unit_test(test_head_computes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
