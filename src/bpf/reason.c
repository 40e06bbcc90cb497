/* SPDX-License-Identifier: MIT */
/* Why the kernel, or libbpf, refused something. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/libbpf.h>

#include "bpf/internal.h"
#include "moonspy/moonspy.h"

/* What libbpf says; the first warning is mostly the reason. */
static __thread char *said;
static __thread size_t said_size;
static __thread libbpf_print_fn_t others;

static int keep_message(enum libbpf_print_level level, const char *format, va_list args)
{
	if (getenv("MOONSPY_BPF_LOG")) /* the verifier's log, for us */
		return vfprintf(stderr, format, args);
	if (level == LIBBPF_WARN && said && !said[0])
		vsnprintf(said, said_size, format, args);
	return 0;
}

void sampler_listen(char *error, size_t size)
{
	if (error)
		error[0] = 0;
	if (error && !said)
		others = libbpf_set_print(keep_message);
	else if (!error && said)
		libbpf_set_print(others);
	said = error;
	said_size = size;
}

void sampler_listen_again(void)
{
	said[0] = 0;
}

int sampler_error(int err)
{
	switch (-err) {
	case EPERM:
	case EACCES:
		return MSP_E_PERMISSION;
	case ENOMEM:
		return MSP_E_NOMEM;
	case EMFILE:
	case ENFILE:
		return MSP_E_LIMIT;
	default:
		return MSP_E_UNSUPPORTED;
	}
}

void sampler_explain(int err, char *error, size_t size)
{
	bool denied = sampler_error(err) == MSP_E_PERMISSION;

	if (denied && geteuid())
		snprintf(error, size,
			 "BPF is not allowed to user %u without CAP_BPF and CAP_PERFMON",
			 (unsigned)geteuid());
	else if (denied)
		snprintf(error, size,
			 "BPF is not allowed here, not even to root: a container, or lockdown");
	else if (!error[0])
		snprintf(error, size, "%s", strerror(-err));
	error[strcspn(error, "\n")] = 0;
}
