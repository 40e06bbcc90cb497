/* SPDX-License-Identifier: MIT */
/*
 * The BPF plug-in: another program loads moonspy.bpf.o with its own libbpf, attaches it as it likes,
 * and reads the records; these calls fill the maps of the object and turn its records into stacks.
 * docs/plugin.md shows all of it, examples/agent is a profiler of the whole machine made of it. The
 * rules of moonspy.h hold: one thread at a time for a plug-in and all that it hands out.
 */
#ifndef MOONSPY_PLUGIN_H
#define MOONSPY_PLUGIN_H

#include <moonspy/moonspy.h>
#include <moonspy/records.h>

#ifdef __cplusplus
extern "C" {
#endif

struct msp_plugin;

struct msp_plugin_options {
	size_t size;           /* sizeof(struct msp_plugin_options) */
	/* The fd of a map of the loaded object by its name, which stays yours; negative: there is none. */
	int (*map_fd)(void *ctx, const char *name);
	void *ctx;
	const char *cache_dir; /* as of struct msp_target_options */
	uint32_t mappings;     /* executable mappings of all processes together; 0: 262144 */
};

/*
 * Before the object is loaded: how many entries that map is to have (bpf_map__set_max_entries()); 0:
 * leave it as it is. options: only .mappings counts; NULL: its default.
 */
MSP_API uint32_t msp_plugin_map_size(const struct msp_plugin_options *options, const char *map);

/* Once it is loaded. MSP_E_INVALID: a map is missing; MSP_E_PERMISSION; MSP_E_NOMEM. */
MSP_API int msp_plugin_new(const struct msp_plugin_options *options, struct msp_plugin **out);
/* After the program was detached. */
MSP_API void msp_plugin_free(struct msp_plugin *plugin);
/* Why the last call failed, in words; "" if none has. */
MSP_API const char *msp_plugin_error(const struct msp_plugin *plugin);

/*
 * Tells the program of a process: its mappings, unwind rows, LuaJITs. Of one that it knows already: of
 * what is new. With config.all that happens by itself when a process is first sampled, whose first
 * samples are then marked; without it, only processes that were added are sampled. MSP_E_GONE,
 * MSP_E_PERMISSION, MSP_E_LIMIT: the maps are full.
 */
MSP_API int msp_plugin_add(struct msp_plugin *plugin, pid_t pid);
/* Forgets a process. */
MSP_API void msp_plugin_remove(struct msp_plugin *plugin, pid_t pid);

/*
 * To be called with every record of the map "ring", in order and soon: names are read from the
 * process as it is now. 1: it is a sample; *out has its stack, still without names, which is good until
 * the next call: msp_backtrace_name(), msp_backtrace_frame(). The frames of code that was mapped when the
 * program did not know yet are cut off with a mark. 0: it was for the plug-in itself. MSP_E_FORMAT: it is no record.
 */
MSP_API int msp_plugin_record(struct msp_plugin *plugin, const void *data, size_t size, const struct msp_sample **sample,
	struct msp_backtrace **out);

/* To be called about once a second: forgets processes that have ended, and files that nobody maps any more. */
MSP_API int msp_plugin_tick(struct msp_plugin *plugin);

#ifdef __cplusplus
}
#endif

#endif
