/* SPDX-License-Identifier: MIT */
/*
 * Symbols of an image and of what complements it: .dynsym, .symtab, the debug
 * file's .symtab, the compressed one in .gnu_debugdata. Nothing is read before
 * it is asked for.
 */
#include <lzma.h>
#include <stdlib.h>
#include <string.h>

#include "elf/image.h"
#include "elf/rows.h"
#include "elf/symbols.h"
#include "moonspy/moonspy.h"

#define DEBUGDATA_MAX (64u << 20)
#define LZMA_MEMORY_MAX (128u << 20)
/* How far back a function is looked for that encloses an address behind its neighbours. */
#define ENCLOSING_MAX 32

enum { SOURCE_DYNSYM, SOURCE_SYMTAB, SOURCE_DEBUG, SOURCE_DEBUGDATA, SOURCE_COUNT };

struct source {
	bool tried;
	bool is64;
	uint64_t base; /* min_vaddr of the file it is from */
	struct msp_bytes syms, names;
};

struct entry {
	uint32_t addr, size;
	uint32_t name;
	uint8_t source;
	uint8_t rank; /* of several at one address the highest is shown */
};

struct msp_symbols {
	struct source sources[SOURCE_COUNT];
	struct msp_image *debugdata;
	bool sorted; /* code is there */
	struct entry *code;
	uint32_t count, room;
	char **demangled; /* one for each of code, NULL until asked for */
	char *found;	  /* demangled name of the last msp_image_find_symbol() */
};

uint64_t msp_symbols_memory(const struct msp_symbols *symbols)
{
	uint64_t bytes;

	if (!symbols)
		return 0;
	bytes = symbols->room * sizeof(*symbols->code);
	if (symbols->demangled) /* few of them are made */
		bytes += symbols->count * sizeof(*symbols->demangled);
	for (int i = 0; i < SOURCE_COUNT; i++)
		bytes += symbols->sources[i].syms.size + symbols->sources[i].names.size;
	return symbols->debugdata ? bytes + msp_image_memory(symbols->debugdata) : bytes;
}

void msp_symbols_free(struct msp_symbols *symbols)
{
	if (!symbols)
		return;
	for (int i = 0; i < SOURCE_COUNT; i++) {
		msp_bytes_free(&symbols->sources[i].syms);
		msp_bytes_free(&symbols->sources[i].names);
	}
	for (uint32_t i = 0; symbols->demangled && i < symbols->count; i++)
		free(symbols->demangled[i]);
	free(symbols->demangled);
	free(symbols->found);
	free(symbols->code);
	msp_image_close(symbols->debugdata);
	free(symbols);
}

/* .gnu_debugdata is an ELF file in xz. */
static int unpack_debugdata(const struct msp_bytes *xz, uint8_t **out, size_t *size)
{
	lzma_stream stream = LZMA_STREAM_INIT;
	size_t room = xz->size < DEBUGDATA_MAX / 8 ? xz->size * 8 : DEBUGDATA_MAX;
	uint8_t *buffer = NULL, *bigger;
	lzma_ret ret = lzma_stream_decoder(&stream, LZMA_MEMORY_MAX, 0);

	stream.next_in = xz->data;
	stream.avail_in = xz->size;
	while (ret == LZMA_OK && stream.total_out < DEBUGDATA_MAX) {
		bigger = realloc(buffer, room);
		if (!bigger)
			break;
		buffer = bigger;
		stream.next_out = buffer + stream.total_out;
		stream.avail_out = room - stream.total_out;
		ret = lzma_code(&stream, LZMA_FINISH);
		room *= 2;
	}
	*size = stream.total_out;
	lzma_end(&stream);
	*out = buffer;
	if (ret == LZMA_STREAM_END)
		return 0;
	free(buffer);
	*out = NULL;
	return MSP_E_FORMAT;
}

static struct msp_image *open_debugdata(struct msp_image *image)
{
	struct msp_image *inner = NULL;
	struct msp_bytes xz;
	uint8_t *elf;
	size_t size;

	if (msp_section_read(image, MSP_SECTION_DEBUGDATA, &xz))
		return NULL;
	if (!unpack_debugdata(&xz, &elf, &size)) {
		if (msp_image_open_memory(elf, size, NULL, &inner))
			inner = NULL;
		free(elf);
	}
	msp_bytes_free(&xz);
	if (inner)
		inner->debug_tried = true;
	return inner;
}

static void load_source(struct source *source, struct msp_image *from, enum msp_section_id id)
{
	const struct msp_section *section = from ? msp_image_section(from, id) : NULL;

	if (!section || section->compressed || msp_section_read(from, id, &source->syms))
		return;
	source->is64 = from->is64;
	source->base = from->min_vaddr;
	if (msp_section_read_index(from, section->link, &source->names) || !source->names.size ||
	    source->names.data[source->names.size - 1]) {
		/* Names that may run off the end are no names. */
		msp_bytes_free(&source->syms);
		msp_bytes_free(&source->names);
	}
}

static struct source *get_source(struct msp_image *image, int i)
{
	struct source *source = &image->symbols->sources[i];

	if (source->tried)
		return source;
	source->tried = true;
	switch (i) {
	case SOURCE_DYNSYM:
		load_source(source, image, MSP_SECTION_DYNSYM);
		break;
	case SOURCE_SYMTAB:
		load_source(source, image, MSP_SECTION_SYMTAB);
		break;
	case SOURCE_DEBUG:
		load_source(source, msp_image_debug(image), MSP_SECTION_SYMTAB);
		break;
	default:
		image->symbols->debugdata = open_debugdata(image);
		load_source(source, image->symbols->debugdata, MSP_SECTION_SYMTAB);
		break;
	}
	return source;
}

static bool get_sym(const struct source *source, size_t i, Elf64_Sym *sym)
{
	Elf32_Sym sym32;
	size_t size = source->is64 ? sizeof(*sym) : sizeof(sym32);

	if (i >= source->syms.size / size)
		return false;
	if (source->is64) {
		memcpy(sym, source->syms.data + i * size, size);
		return true;
	}
	memcpy(&sym32, source->syms.data + i * size, size);
	sym->st_name = sym32.st_name;
	sym->st_info = sym32.st_info;
	sym->st_other = sym32.st_other;
	sym->st_shndx = sym32.st_shndx;
	sym->st_value = sym32.st_value;
	sym->st_size = sym32.st_size;
	return true;
}

/* Name of a symbol that is defined here, NULL for others. */
static const char *defined_name(const struct source *source, const Elf64_Sym *sym)
{
	int type = ELF64_ST_TYPE(sym->st_info);

	if (sym->st_shndx == SHN_UNDEF || sym->st_name >= source->names.size || !sym->st_name ||
	    type == STT_SECTION || type == STT_FILE || type == STT_TLS ||
	    sym->st_value < source->base)
		return NULL;
	return (const char *)source->names.data + sym->st_name;
}

/* arm64 marks where code ($x) and data ($d) start; these are no names. */
static bool mapping_symbol(const char *name)
{
	return name[0] == '$' && name[1] && strchr("xdat", name[1]) &&
	       (name[2] == '\0' || name[2] == '.');
}

/*
 * Which of several names at one address to show: a sized function, not local,
 * with few leading underscores (read, not __read or __GI___libc_read), global.
 */
static uint8_t rank_of(const Elf64_Sym *sym, const char *name)
{
	int type = ELF64_ST_TYPE(sym->st_info), bind = ELF64_ST_BIND(sym->st_info);
	int underscores = name[0] != '_' || name[1] == 'Z' || name[1] == 'R' ? 0
			  : name[1] != '_'				     ? 1
			  : strncmp(name, "__GI_", 5)			     ? 2
									     : 3;

	return (uint8_t)((sym->st_size != 0) << 6 | (type != STT_NOTYPE) << 5 |
			 (bind != STB_LOCAL) << 4 | (3 - underscores) << 2 |
			 (bind != STB_WEAK) << 1);
}

static int add_code(struct msp_image *image, int from, const Elf64_Sym *sym, const char *name)
{
	struct msp_symbols *symbols = image->symbols;
	int type = ELF64_ST_TYPE(sym->st_info);
	uint64_t addr = sym->st_value - symbols->sources[from].base, end;
	struct entry *entry;

	if ((type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE) ||
	    sym->st_shndx == SHN_ABS || addr > UINT32_MAX || mapping_symbol(name) ||
	    !msp_image_executable(image, addr + image->min_vaddr, &end))
		return 0;
	entry = msp_elf_grow(symbols->code, symbols->count, &symbols->room, sizeof(*entry));
	if (!entry)
		return MSP_E_NOMEM;
	symbols->code = entry;
	entry += symbols->count++;
	end -= addr + image->min_vaddr;
	entry->addr = (uint32_t)addr;
	entry->size = (uint32_t)(sym->st_size < end ? sym->st_size : end);
	entry->name = sym->st_name;
	entry->source = (uint8_t)from;
	entry->rank = rank_of(sym, name);
	return 0;
}

/* By address; the best one of each first. */
static int by_address(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	if (x->rank != y->rank)
		return x->rank > y->rank ? -1 : 1;
	if (x->source != y->source)
		return x->source < y->source ? -1 : 1;
	return x->name < y->name ? -1 : x->name > y->name;
}

static int sort_code(struct msp_image *image)
{
	struct msp_symbols *symbols = image->symbols;
	uint32_t kept = 0;
	Elf64_Sym sym;
	int err = 0;

	for (int from = 0; from < SOURCE_COUNT; from++) {
		const struct source *source;

		/* With the full table in the file itself, the others can only repeat it. */
		if (from > SOURCE_SYMTAB && symbols->sources[SOURCE_SYMTAB].syms.size)
			break;
		source = get_source(image, from);
		for (size_t i = 0; !err && get_sym(source, i, &sym); i++) {
			const char *name = defined_name(source, &sym);

			if (name)
				err = add_code(image, from, &sym, name);
		}
	}
	if (err)
		return err;
	if (symbols->count)
		qsort(symbols->code, symbols->count, sizeof(*symbols->code), by_address);
	for (uint32_t i = 0; i < symbols->count; i++)
		if (!kept || symbols->code[kept - 1].addr != symbols->code[i].addr)
			symbols->code[kept++] = symbols->code[i];
	symbols->count = kept;
	symbols->demangled = calloc(kept ? kept : 1, sizeof(*symbols->demangled));
	if (!symbols->demangled)
		return MSP_E_NOMEM;
	symbols->sorted = true;
	return 0;
}

static int prepare(struct msp_image *image)
{
	if (!image->symbols)
		image->symbols = calloc(1, sizeof(*image->symbols));
	return image->symbols ? 0 : MSP_E_NOMEM;
}

/* Index of the symbol that holds addr, -1 if there is none. */
static int64_t find_code(const struct msp_symbols *symbols, uint64_t addr)
{
	uint32_t low = 0, high = symbols->count;
	int64_t label = -1;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (symbols->code[mid].addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	for (uint32_t back = 0; low > back && back < ENCLOSING_MAX; back++) {
		const struct entry *entry = &symbols->code[low - back - 1];

		if (addr - entry->addr < entry->size)
			return low - back - 1;
		/* A label without size: good for what follows, unless a function encloses it. */
		if (!back && !entry->size)
			label = low - 1;
	}
	return label;
}

/* Old linkers put the version into the name: memcpy@@GLIBC_2.14. */
static char *display_name(const char *name)
{
	char *demangled = msp_demangle(name), *at;

	if (demangled)
		return demangled;
	demangled = strdup(name);
	at = demangled && demangled[0] != '@' ? strchr(demangled, '@') : NULL;
	if (at)
		*at = '\0';
	return demangled;
}

int msp_symbols_at(struct msp_image *image, uint64_t addr, struct msp_symbol *out)
{
	struct msp_symbols *symbols;
	const struct entry *entry;
	int64_t i;
	int err = prepare(image);

	if (err)
		return err;
	symbols = image->symbols;
	if (!symbols->sorted) {
		symbols->count = 0;
		err = sort_code(image);
		if (err)
			return err;
	}
	i = addr > UINT32_MAX ? -1 : find_code(symbols, addr);
	if (i < 0)
		return MSP_E_NOT_FOUND;
	entry = &symbols->code[i];
	/* A label without size is none of the next section: _init, where .plt and .text follow it. */
	if (!entry->size &&
	    !msp_section_same_code(image, entry->addr + image->min_vaddr, addr + image->min_vaddr))
		return MSP_E_NOT_FOUND;
	if (!symbols->demangled[i])
		symbols->demangled[i] = display_name(
			(const char *)symbols->sources[entry->source].names.data + entry->name);
	if (!symbols->demangled[i])
		return MSP_E_NOMEM;
	out->name = symbols->demangled[i];
	out->addr = entry->addr;
	out->size = entry->size;
	return 0;
}

int msp_image_symbol(struct msp_image *image, uint64_t addr, struct msp_symbol *out)
{
	int err = msp_symbols_at(image, addr, out);

	return err == MSP_E_NOT_FOUND ? msp_plt_symbol(image, addr, out) : err;
}

/* The symbol of a source with that name. */
static bool find_in_source(const struct source *source, const char *name, Elf64_Sym *sym)
{
	for (size_t i = 0; get_sym(source, i, sym); i++) {
		const char *have = defined_name(source, sym);

		if (have && *have == *name && !strcmp(have, name))
			return true;
	}
	return false;
}

bool msp_symbols_export(struct msp_image *image, const char *name, bool *any)
{
	const struct source *source;
	Elf64_Sym sym;

	*any = false;
	if (prepare(image))
		return false;
	source = get_source(image, SOURCE_DYNSYM);
	*any = source->syms.size != 0;
	return find_in_source(source, name, &sym);
}

const char *msp_symbols_dynamic(struct msp_image *image, uint64_t number)
{
	const struct source *source;
	Elf64_Sym sym;

	if (prepare(image))
		return NULL;
	source = get_source(image, SOURCE_DYNSYM);
	if (!get_sym(source, number, &sym) || !sym.st_name || sym.st_name >= source->names.size)
		return NULL;
	return (const char *)source->names.data + sym.st_name;
}

int msp_image_find_symbol(struct msp_image *image, const char *name, struct msp_symbol *out)
{
	Elf64_Sym sym;
	int err = prepare(image);

	for (int from = 0; !err && from < SOURCE_COUNT; from++) {
		const struct source *source = get_source(image, from);

		if (!find_in_source(source, name, &sym))
			continue;
		free(image->symbols->found);
		image->symbols->found = display_name(name);
		if (!image->symbols->found)
			return MSP_E_NOMEM;
		out->name = image->symbols->found;
		out->addr = sym.st_value - source->base;
		out->size = sym.st_size;
		return 0;
	}
	return err ? err : MSP_E_NOT_FOUND;
}
