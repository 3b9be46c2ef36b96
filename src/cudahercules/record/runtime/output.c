/* The request that the launcher reads and the recording that it writes. Both are lines of text; the
 * recording's lines are JSON objects, and uploaded bytes stand in a file of their own. */
#include "state.h"

void write_tensor_maps(FILE *out);

static void bad_request(const char *line) {
    fprintf(stderr, "bad request line: %.200s\n", line);
    _Exit(71);
}

static void *append(void *items, int count, size_t size) {
    void *memory = realloc(items, (size_t)(count + 1) * size);
    if (!memory) _Exit(70);
    return memory;
}

static void read_kernel(char *rest, const char *line) {
    Kernel k = {.carveout = -1};
    int used, shared_block = 0;
    if (sscanf(rest, "%d %d %d %d %d %d %d %u %u %u %u %u %u %d%n", &k.module, &k.index, &k.registers,
               &k.static_shared, &k.local, &k.constant, &k.max_threads, &k.cluster[0], &k.cluster[1], &k.cluster[2],
               &k.block[0], &k.block[1], &k.block[2], &k.parameter_count, &used) != 14 ||
        k.parameter_count < 0 || k.parameter_count > 4096)
        bad_request(line);
    rest += used;
    k.parameters = must_alloc((size_t)k.parameter_count, sizeof *k.parameters);
    for (int i = 0; i < k.parameter_count; i++, rest += used) {
        Parameter *p = &k.parameters[i];
        if (sscanf(rest, " %u %u%n", &p->offset, &p->size, &used) != 2) bad_request(line);
        if (p->offset + p->size > k.parameter_bytes) k.parameter_bytes = p->offset + p->size;
    }
    k.name = strdup(rest + 1);
    attribute_of(cudaDevAttrMaxSharedMemoryPerBlock, &shared_block);
    k.max_dynamic = shared_block - k.static_shared;
    S.kernels = append(S.kernels, S.kernel_count, sizeof k);
    S.kernels[S.kernel_count++] = k;
}

static void read_line(char *line) {
    int used = 0, number, value;
    unsigned long long address, size, total;
    char word[16], space;
    if (sscanf(line, "%15s %n", word, &used) != 1) bad_request(line);
    char *rest = line + used;
    if (!strcmp(word, "device"))
        snprintf(S.profile.name, sizeof S.profile.name, "%s", rest);
    else if (!strcmp(word, "memory") && sscanf(rest, "%llu %llu", &size, &total) == 2)
        S.profile.free_memory = size, S.profile.total_memory = total;
    else if (!strcmp(word, "attribute") && sscanf(rest, "%d %d", &number, &value) == 2) {
        if (number >= 0 && number < MAX_ATTRIBUTES)
            S.profile.attribute[number] = value, S.profile.known[number] = true;
    } else if (!strcmp(word, "gpc") && sscanf(rest, "%d", &value) == 1) {
        if (S.profile.gpc_count < 64) S.profile.gpc_sms[S.profile.gpc_count++] = value;
    } else if (!strcmp(word, "told") && sscanf(rest, "%llu %n", &size, &used) == 1) {
        S.told = append(S.told, S.told_count, sizeof *S.told);
        S.told[S.told_count++] = (Told){.question = strdup(rest + used), .answer = (long long)size};
    } else if (!strcmp(word, "module") && sscanf(rest, "%llx", &address) == 1) {
        S.module_hashes = append(S.module_hashes, S.module_count, sizeof *S.module_hashes);
        S.module_hashes[S.module_count++] = address;
    } else if (!strcmp(word, "kernel"))
        read_kernel(rest, line);
    else if (!strcmp(word, "symbol") && sscanf(rest, "%d %c %llu %llu %n", &number, &space, &address, &size, &used) == 4) {
        S.symbols = append(S.symbols, S.symbol_count, sizeof *S.symbols);
        S.symbols[S.symbol_count++] = (Symbol){.module = number, .constant = space == 'c', .address = address,
                                               .size = size, .name = strdup(rest + used)};
    } else if (!strcmp(word, "buffer") && sscanf(rest, "%c %llu %llu %n", &space, &address, &size, &used) == 3) {
        if (!S.regions) S.regions = must_alloc(MAX_SCRATCH_COUNT + 1024, sizeof *S.regions);
        if (S.region_count == 1024) bad_request(line);
        S.regions[S.region_count++] = (Region){.name = strdup(rest + used), .address = address, .size = size,
                                               .input = space == 'i', .alive = true};
    } else if (!strcmp(word, "scratch") && sscanf(rest, "%llu", &address) == 1)
        S.scratch_next = address;
    else
        bad_request(line);
}

/* Reads up to the line "calls"; what follows is the launcher's. */
void read_request(void) {
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    while ((length = getline(&line, &room, stdin)) > 0) {
        if (line[length - 1] == '\n') line[length - 1] = 0;
        if (!strcmp(line, "calls")) break;
        read_line(line);
    }
    free(line);
    if (!S.regions) S.regions = must_alloc(MAX_SCRATCH_COUNT + 1024, sizeof *S.regions);
}

/* --- the recording ------------------------------------------------------------------------------- */

static void write_text(FILE *out, const char *key, const char *text) {
    fprintf(out, "{\"%s\": \"", key);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else
            fputc(*c < 32 || *c > 126 ? '?' : *c, out);
    fputs("\"}\n", out);
}

static void write_launch(FILE *out, const Launch *l) {
    fprintf(out,
            "\"op\": \"kernel\", \"module\": %d, \"kernel\": %d, \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], "
            "\"dynamic_shared\": %zu, \"cluster\": [%u, %u, %u], \"preferred_cluster\": [%u, %u, %u], "
            "\"cluster_policy\": %d, \"cooperative\": %s, \"programmatic\": %s, \"priority\": %d, "
            "\"shared_carveout\": %d, \"non_portable_cluster\": %s, ",
            l->kernel->module, l->kernel->index, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1],
            l->block[2], l->dynamic_shared, l->cluster[0], l->cluster[1], l->cluster[2], l->preferred[0],
            l->preferred[1], l->preferred[2], l->policy, l->cooperative ? "true" : "false",
            l->programmatic ? "true" : "false", l->priority, l->carveout, l->non_portable ? "true" : "false");
    if (l->has_window)
        fprintf(out, "\"access_policy\": {\"address\": %llu, \"size\": %zu, \"hit_ratio\": %.9g, \"hit\": %d, \"miss\": %d}, ",
                (unsigned long long)l->window.base_ptr, l->window.num_bytes, (double)l->window.hitRatio,
                (int)l->window.hitProp, (int)l->window.missProp);
    fputs("\"parameters\": \"", out);
    for (uint32_t i = 0; i < l->kernel->parameter_bytes; i++) fprintf(out, "%02x", l->parameters[i]);
    fputc('"', out);
}

static void write_op(FILE *out, const Op *op, const int *stream_map, const int *event_map) {
    fprintf(out, "{\"stream\": %d, ", stream_map[op->stream]);
    switch (op->kind) {
    case OP_KERNEL: write_launch(out, op->launch); break;
    case OP_MEMSET:
        fprintf(out,
                "\"op\": \"memset\", \"address\": %llu, \"value\": %u, \"element_size\": %u, \"width\": %zu, "
                "\"height\": %zu, \"pitch\": %zu",
                (unsigned long long)op->set.address, op->set.value, op->set.element, op->set.width, op->set.height,
                op->set.pitch);
        break;
    case OP_COPY:
        fprintf(out,
                "\"op\": \"copy\", \"destination\": %llu, \"source\": %llu, \"width\": %zu, \"height\": %zu, "
                "\"destination_pitch\": %zu, \"source_pitch\": %zu",
                (unsigned long long)op->copy.to, (unsigned long long)op->copy.from, op->copy.width, op->copy.height,
                op->copy.to_pitch, op->copy.from_pitch);
        break;
    case OP_UPLOAD:
        fprintf(out, "\"op\": \"upload\", \"destination\": %llu, \"blob\": [%zu, %zu]",
                (unsigned long long)op->upload.to, op->upload.offset, op->upload.size);
        break;
    case OP_RECORD: fprintf(out, "\"op\": \"record\", \"event\": %d", event_map[op->event]); break;
    case OP_WAIT: fprintf(out, "\"op\": \"wait\", \"event\": %d", event_map[op->event]); break;
    case OP_EMPTY: fputs("\"op\": \"empty\"", out); break;
    }
    fputs("}\n", out);
}

/* Records that nothing waits for are left out; streams and events are numbered by first use. */
static void write_phases(FILE *out) {
    int *event_map = must_alloc((size_t)S.event_count + 1, sizeof *event_map);
    int stream_map[MAX_STREAMS], streams = 1, events = 0, written = 0;
    bool *waited = must_alloc((size_t)S.event_count + 1, sizeof *waited);
    for (int i = 0; i < MAX_STREAMS; i++) stream_map[i] = -1;
    stream_map[0] = 0;
    for (int phase = 0; phase < 2; phase++)
        for (int i = 0; i < S.ops[phase].count; i++)
            if (S.ops[phase].items[i].kind == OP_WAIT) waited[S.ops[phase].items[i].event] = true;
    for (int phase = 0; phase < 2; phase++) {
        fprintf(out, "{\"phase\": \"%s\"}\n", phase ? "solve" : "prepare");
        for (int i = 0; i < S.ops[phase].count; i++) {
            const Op *op = &S.ops[phase].items[i];
            if (op->kind == OP_RECORD) {
                if (!waited[op->event]) continue;
                event_map[op->event] = events++;
            }
            if (stream_map[op->stream] < 0) stream_map[op->stream] = streams++;
            if (++written > 4 * MAX_OPERATIONS) refuse("more than %d operations", 4 * MAX_OPERATIONS);
            write_op(out, op, stream_map, event_map);
        }
    }
    free(event_map), free(waited);
}

void write_recording(FILE *out, FILE *blob) {
    if (!S.contract[0] && S.pending[0])
        refuse("%s; the error was never looked at", S.pending);
    if (!S.contract[0] && S.failed_launches && !S.launches)
        refuse("no launch succeeded; the last error: %s", S.failed);
    if (!S.contract[0]) {
        for (int i = 0; i < S.region_count; i++)
            if (S.regions[i].scratch)
                fprintf(out, "{\"scratch\": \"%s\", \"address\": %llu, \"size\": %zu}\n", S.regions[i].name,
                        (unsigned long long)S.regions[i].address, S.regions[i].size);
        write_tensor_maps(out);
        write_answers(out);
        fprintf(out, "{\"stack_limit\": %zu, \"persisting_l2\": %zu}\n", S.stack_limit, S.persisting_l2);
        write_phases(out);
        if (S.blob_size && fwrite(S.blob, 1, S.blob_size, blob) != S.blob_size) refuse("the recording could not be written");
    }
    if (S.contract[0]) write_text(out, "contract", S.contract);
    fputs("{\"end\": true}\n", out);
}
