/* SPDX-License-Identifier: MIT */
/* Error codes of libmoonspy. Functions return 0 or a positive value on success, one of these on failure. */
#ifndef MOONSPY_H
#define MOONSPY_H

#define MSP_ERRORS(_) \
	_(NOMEM, 1, "out of memory") \
	_(INVALID, 2, "invalid argument") \
	_(IO, 3, "input/output error") \
	_(NOT_FOUND, 4, "not found") \
	_(GONE, 5, "the process is gone") \
	_(PERMISSION, 6, "not permitted") \
	_(FORMAT, 7, "malformed data") \
	_(UNSUPPORTED, 8, "not supported") \
	_(FAULT, 9, "address not readable") \
	_(NO_LUAJIT, 10, "no LuaJIT there") \
	_(NOT_PROVED, 11, "layout not proved") \
	_(LIMIT, 12, "limit reached") \
	_(BUSY, 13, "busy")

enum msp_error {
#define _(id, n, text) MSP_E_##id = -(n),
	MSP_ERRORS(_)
#undef _
};

/* Text for an error code; never NULL. Static storage, any thread, any signal handler. */
const char *msp_strerror(int error);

#endif
