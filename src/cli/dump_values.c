/* SPDX-License-Identifier: MIT */
/* Variables and their values, as text and as JSON (docs/formats.md, "Values"). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli/dump.h"
#include "output/output.h"

/* A value on its way out: function values get their names from the VM. */
struct printing {
	struct msp_buffer *buffer; /* text; NULL: json */
	struct msp_json *json;
	const struct dump_frame *frame;
};

/* The frame that would stand for a function, with its name; NULL: there is no telling. */
static const struct msp_frame *function_of(const struct printing *p, const struct msp_value *value)
{
	const struct msp_frame *function;

	msp_backtrace_function(p->frame->backtrace, p->frame->i, value, &function);
	return function;
}

/* ---- Text ---- */

static void print_number(struct msp_buffer *b, double number)
{
	if (isnan(number))
		msp_buffer_text(b, "nan");
	else
		msp_buffer_printf(b, "%.14g", number);
}

static void print_string(struct msp_buffer *b, const struct msp_value *value)
{
	msp_buffer_char(b, '"');
	if (value->text)
		msp_buffer_escaped_bytes(b, value->text, value->kept, "\"");
	msp_buffer_char(b, '"');
	if (value->cut)
		msp_buffer_printf(b, "... (%" PRIu32 " bytes)", value->length);
}

static void print_value(const struct printing *p, const struct msp_value *value);

/* A key as one would write it in Lua. */
static bool is_name(const struct msp_value *key)
{
	if (key->type != MSP_TYPE_STRING || !key->kept || key->cut)
		return false;
	for (uint32_t i = 0; i < key->kept; i++) {
		char c = key->text[i];
		bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';

		if (!letter && (i == 0 || c < '0' || c > '9'))
			return false;
	}
	return true;
}

static void print_key(const struct printing *p, const struct msp_value *key)
{
	if (is_name(key)) {
		msp_buffer_put(p->buffer, key->text, key->kept);
	} else {
		msp_buffer_char(p->buffer, '[');
		print_value(p, key);
		msp_buffer_char(p->buffer, ']');
	}
	msp_buffer_text(p->buffer, " = ");
}

static void print_table(const struct printing *p, const struct msp_value *table)
{
	const struct msp_value *key, *value;
	double next = 1;

	if (!table->expanded) {
		msp_buffer_printf(p->buffer, "table 0x%" PRIx64, table->address);
		return;
	}
	msp_buffer_char(p->buffer, '{');
	for (uint32_t i = 0; msp_value_entry(table, i, &key, &value); i++) {
		if (i)
			msp_buffer_text(p->buffer, ", ");
		if (key->type == MSP_TYPE_NUMBER && key->number == next)
			next++;
		else
			print_key(p, key);
		print_value(p, value);
	}
	if (table->cut)
		msp_buffer_text(p->buffer, table->entries ? ", ..." : "...");
	msp_buffer_char(p->buffer, '}');
}

static void print_function(const struct printing *p, const struct msp_value *value)
{
	const struct msp_frame *function = function_of(p, value);
	char text[512];

	msp_buffer_text(p->buffer, "function ");
	if (!function) {
		msp_buffer_printf(p->buffer, "0x%" PRIx64, value->address);
		return;
	}
	msp_frame_text(function, false, text, sizeof(text));
	msp_buffer_escaped(p->buffer, text, "");
}

static void print_cdata(const struct printing *p, const struct msp_value *value)
{
	msp_buffer_text(p->buffer, "cdata");
	if (value->text) {
		msp_buffer_char(p->buffer, '<');
		msp_buffer_escaped(p->buffer, value->text, "");
		msp_buffer_char(p->buffer, '>');
	}
	if (value->content)
		msp_buffer_printf(p->buffer, " %s", value->content);
	else
		msp_buffer_printf(p->buffer, " at 0x%" PRIx64, value->address);
}

static void print_value(const struct printing *p, const struct msp_value *value)
{
	switch (value->type) {
	case MSP_TYPE_NIL:
		msp_buffer_text(p->buffer, "nil");
		return;
	case MSP_TYPE_BOOLEAN:
		msp_buffer_text(p->buffer, value->boolean ? "true" : "false");
		return;
	case MSP_TYPE_NUMBER:
		print_number(p->buffer, value->number);
		return;
	case MSP_TYPE_STRING:
		print_string(p->buffer, value);
		return;
	case MSP_TYPE_TABLE:
		print_table(p, value);
		return;
	case MSP_TYPE_FUNCTION:
		print_function(p, value);
		return;
	case MSP_TYPE_CDATA:
		print_cdata(p, value);
		return;
	case MSP_TYPE_THREAD:
		msp_buffer_printf(p->buffer, "coroutine 0x%" PRIx64, value->address);
		return;
	case MSP_TYPE_USERDATA:
		msp_buffer_printf(p->buffer, "userdata 0x%" PRIx64, value->address);
		return;
	case MSP_TYPE_LIGHTUSERDATA:
		msp_buffer_text(p->buffer, "lightuserdata");
		return;
	default:
		msp_buffer_text(p->buffer, "[not readable]");
		return;
	}
}

void dump_variables_text(const struct dump_frame *frame)
{
	static const char *const kinds[] = {
		[MSP_LOCAL] = "local", [MSP_UPVALUE] = "upvalue", [MSP_VARARG] = "vararg"};
	struct msp_buffer buffer = {0};
	struct printing p = {.buffer = &buffer, .frame = frame};

	for (size_t i = 0; i < frame->variables->count; i++) {
		const struct msp_variable *variable = &frame->variables->variable[i];

		msp_buffer_printf(&buffer, "        %s ", kinds[variable->kind]);
		if (variable->name)
			msp_buffer_escaped(&buffer, variable->name, "");
		else
			msp_buffer_printf(&buffer, "%s%" PRIu32,
					  variable->kind == MSP_LOCAL ? "slot " : "",
					  variable->index + (variable->kind != MSP_LOCAL));
		msp_buffer_text(&buffer, " = ");
		print_value(&p, &variable->value);
		msp_buffer_char(&buffer, '\n');
	}
	if (frame->variables->in_registers)
		msp_buffer_text(&buffer, "        [locals are in the trace's registers]\n");
	if (frame->variables->cut)
		msp_buffer_text(&buffer, "        [more variables]\n");
	fwrite(buffer.data, 1, buffer.size, stdout);
	msp_buffer_free(&buffer);
}

/* ---- JSON ---- */

static void put_text(struct msp_json *json, const char *key, const char *text)
{
	msp_json_key(json, key);
	msp_json_string(json, text);
}

static void put_address(struct msp_json *json, uint64_t address)
{
	msp_json_key(json, "address");
	msp_json_hex(json, address);
}

static void put_value(const struct printing *p, const struct msp_value *value);

static void put_number(struct msp_json *json, double number)
{
	msp_json_key(json, "value");
	msp_json_double(json, number);
	if (!isfinite(number))
		put_text(json, "text", isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
}

static void put_string(struct msp_json *json, const struct msp_value *value)
{
	msp_json_key(json, "value");
	msp_json_bytes(json, value->text ? value->text : "", value->kept);
	msp_json_key(json, "length");
	msp_json_uint(json, value->length);
	msp_json_key(json, "cut");
	msp_json_bool(json, value->cut);
}

static void put_table(const struct printing *p, const struct msp_value *table)
{
	const struct msp_value *key, *value;
	struct msp_json *json = p->json;

	put_address(json, table->address);
	msp_json_key(json, "entries");
	if (!table->expanded) {
		msp_json_null(json);
		return;
	}
	msp_json_array(json);
	for (uint32_t i = 0; msp_value_entry(table, i, &key, &value); i++) {
		msp_json_object(json);
		msp_json_key(json, "key");
		put_value(p, key);
		msp_json_key(json, "value");
		put_value(p, value);
		msp_json_end(json);
	}
	msp_json_end(json);
	msp_json_key(json, "cut");
	msp_json_bool(json, table->cut);
}

static void put_function(const struct printing *p, const struct msp_value *value)
{
	const struct msp_frame *function = function_of(p, value);

	put_address(p->json, value->address);
	msp_json_key(p->json, "function");
	if (function)
		msp_json_frame(p->json, function);
	else
		msp_json_null(p->json);
}

static void put_members(const struct printing *p, const struct msp_value *value)
{
	struct msp_json *json = p->json;

	switch (value->type) {
	case MSP_TYPE_BOOLEAN:
		msp_json_key(json, "value");
		msp_json_bool(json, value->boolean);
		return;
	case MSP_TYPE_NUMBER:
		put_number(json, value->number);
		return;
	case MSP_TYPE_STRING:
		put_string(json, value);
		return;
	case MSP_TYPE_TABLE:
		put_table(p, value);
		return;
	case MSP_TYPE_FUNCTION:
		put_function(p, value);
		return;
	case MSP_TYPE_CDATA:
		put_address(json, value->address);
		put_text(json, "ctype", value->text);
		put_text(json, "content", value->content);
		return;
	case MSP_TYPE_THREAD:
	case MSP_TYPE_USERDATA:
		put_address(json, value->address);
		return;
	}
}

static void put_value(const struct printing *p, const struct msp_value *value)
{
	static const char *const names[] = {
#define _(id, name) name,
		MSP_TYPES(_)
#undef _
	};

	msp_json_object(p->json);
	put_text(p->json, "type", names[value->type]);
	put_members(p, value);
	msp_json_end(p->json);
}

static void put_kind(const struct printing *p, const struct msp_variables *variables, int kind,
		     const char *key)
{
	struct msp_json *json = p->json;

	msp_json_key(json, key);
	msp_json_array(json);
	for (size_t i = 0; i < variables->count; i++) {
		const struct msp_variable *variable = &variables->variable[i];

		if (variable->kind != kind)
			continue;
		msp_json_object(json);
		put_text(json, "name", variable->name);
		msp_json_key(json, "index");
		msp_json_uint(json, variable->index);
		msp_json_key(json, "value");
		put_value(p, &variable->value);
		msp_json_end(json);
	}
	msp_json_end(json);
}

void dump_variables_json(struct msp_json *json, const struct dump_frame *frame)
{
	struct printing p = {.json = json, .frame = frame};

	put_kind(&p, frame->variables, MSP_LOCAL, "locals");
	put_kind(&p, frame->variables, MSP_UPVALUE, "upvalues");
	put_kind(&p, frame->variables, MSP_VARARG, "varargs");
	msp_json_key(json, "locals_known");
	msp_json_bool(json, !frame->variables->in_registers && !frame->variables->cut);
}
