/* Shared state of the stand-in CUDA runtime.
 *
 * Nothing here touches a device. Host code of a candidate calls the CUDA 13 runtime as usual; each
 * call that would enqueue device work becomes an operation, and each question about the device is
 * answered from a profile. The launcher writes everything out after the candidate has returned.
 *
 * All entry points take one recursive lock (ENTER), so that host threads cannot tear the state.
 */
#ifndef HERCULES_STATE_H
#define HERCULES_STATE_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

#define MAX_OPERATIONS 100000
#define MAX_SCRATCH_BYTES (64ull << 30)
#define MAX_SCRATCH_COUNT 4096
#define MAX_UPLOAD_BYTES (64ull << 20)
#define MAX_STREAMS 1024
#define MAX_TENSOR_MAPS 4096
#define MAX_ATTRIBUTES 256
#define PAGE_BYTES (2ull << 20)
#define ALIGN_BYTES 256ull

typedef uint64_t Address; /* in the arena or among the symbols; never valid on the host */

/* --- what the request says ------------------------------------------------------------------ */

typedef struct {
    uint32_t offset, size;
} Parameter;

typedef struct {
    int module, index;
    char *name;
    int registers, static_shared, local, constant, max_threads;
    unsigned cluster[3], block[3]; /* fixed at compile time, 0 0 0 otherwise */
    int parameter_count;
    Parameter *parameters;
    uint32_t parameter_bytes;
    /* function attributes that host code may set */
    int max_dynamic, carveout, non_portable, must_set_cluster, policy;
    unsigned required[3];
} Kernel;

typedef struct {
    int module;
    char *name;
    bool constant;
    Address address;
    size_t size;
    void *host; /* the shadow variable whose address host code passes as "symbol" */
} Symbol;

typedef struct {
    char *name;
    Address address;
    size_t size;
    bool input, scratch, alive, any_stream;
    void *freed_on; /* stream whose later allocations may take the block again */
} Region;

typedef struct {
    char name[256];
    size_t total_memory, free_memory;
    int attribute[MAX_ATTRIBUTES];
    bool known[MAX_ATTRIBUTES];
    int gpc_count, gpc_sms[64];
} Profile;

/* What the device itself answered to a question whose answer is else computed here. */
typedef struct {
    char *question;
    long long answer;
} Told;

/* --- operations ------------------------------------------------------------------------------- */

typedef enum { OP_EMPTY, OP_KERNEL, OP_MEMSET, OP_COPY, OP_UPLOAD, OP_RECORD, OP_WAIT } OpKind;

typedef struct {
    Kernel *kernel;
    unsigned grid[3], block[3], cluster[3], preferred[3];
    size_t dynamic_shared;
    bool cooperative, programmatic, has_window;
    int priority, carveout, policy, non_portable;
    struct cudaAccessPolicyWindow window;
    unsigned char *parameters;
} Launch;

typedef struct {
    OpKind kind;
    int stream; /* plan's number; filled in when the operation enters the list */
    union {
        Launch *launch;
        struct { Address address; uint32_t value, element; size_t width, height, pitch; } set;
        struct { Address to, from; size_t width, height, to_pitch, from_pitch; } copy;
        struct { Address to; size_t offset, size; } upload; /* offset into the blob */
        int event;
    };
} Op;

typedef struct {
    Op *items;
    int count, room;
} OpList;

/* --- streams, events, graphs ------------------------------------------------------------------- */

typedef struct Graph Graph;
typedef struct Stream Stream;

typedef struct Node {
    Graph *graph;
    int index;
    Op op;
    struct Node **needs;
    int need_count, need_room;
    Stream *captured_on;        /* NULL for nodes made by hand */
    int chain, event, position; /* while a launch inlines the graph */
} Node;

struct Graph {
    Node **nodes;
    int count, room;
    bool alive;
};

typedef struct {
    Graph *graph;
    Stream *origin;
    enum cudaStreamCaptureMode mode;
    unsigned long long id;
    bool active, owns_graph;
} Capture;

typedef struct {
    Node **nodes;
    int count;
} NodeSet;

struct Stream {
    int number;     /* in the plan */
    bool blocking;  /* ordered against the legacy default stream */
    bool alive, internal;
    unsigned flags;
    int priority, sync_policy;
    struct cudaAccessPolicyWindow window;
    /* this phase */
    bool forked;
    int last;          /* position of its last operation, -1 without one */
    int seen_barriers; /* how many host barriers it has taken notice of */
    int seen_legacy;   /* position of the legacy operation that it is ordered after */
    int covered[MAX_STREAMS]; /* per other stream: ordered after its operations up to here */
    Stream *side[64];  /* where launches of graphs on this stream put parallel branches */
    Capture *capture;
    NodeSet tips; /* what the next captured operation depends on */
};

typedef struct {
    bool alive;
    unsigned flags;
    int phase, plan_event, position, stream; /* last record outside a capture */
    Capture *capture;                        /* last record, if inside one */
    NodeSet tips;
} Event;

/* --- the one state ------------------------------------------------------------------------------ */

typedef struct {
    Profile profile;
    Kernel *kernels;
    int kernel_count;
    Told *told;
    int told_count;
    Symbol *symbols;
    int symbol_count;
    Region *regions;
    int region_count;
    uint64_t *module_hashes;
    int module_count;
    Address scratch_next;
    size_t scratch_bytes;
    int scratch_count;

    OpList ops[2]; /* prepare, solve */
    int phase;     /* index into ops; -1 outside both */
    int operation_count, event_count;
    int begin_event;
    unsigned char *blob;
    size_t blob_size, blob_room;

    Stream *streams[MAX_STREAMS];
    int stream_count;
    Stream *given, *legacy_view;
    int capture_count; /* active ones */
    unsigned long long capture_ids;

    size_t stack_limit, persisting_l2, printf_fifo;
    cudaError_t last_error;
    char pending[1024]; /* the failed call whose error nobody has looked at yet */
    char failed[1024];  /* the last failed call, looked at or not */
    char contract[1024];
    int failed_launches, launches;
} State;

extern State S;

typedef struct { int unused; } Guard;
Guard lock_state(void);
void unlock_state(Guard *guard);
#define ENTER __attribute__((cleanup(unlock_state), unused)) Guard guard_ = lock_state()

/* errors.c */
cudaError_t refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
cudaError_t fail(cudaError_t code, const char *format, ...) __attribute__((format(printf, 2, 3)));
cudaError_t set_error(cudaError_t code);
const char *error_name(int code);
void *must_alloc(size_t count, size_t size);
void *must_grow(void *old, int count, int *room, size_t size);

/* device.c */
bool attribute_of(int number, int *value);
void answer(const char *question, const char *format, ...) __attribute__((format(printf, 2, 3)));
long long told_or(const char *question, long long computed);
void write_answers(FILE *out);

/* occupancy.c */
int occupancy_blocks(const Kernel *kernel, int threads, size_t dynamic);
int occupancy_clusters(const Kernel *kernel, int threads, size_t dynamic, int cluster);

/* memory.c */
bool is_device_address(const void *pointer);
Region *region_of(Address address, size_t size);
Symbol *symbol_at(Address address, size_t size);
Symbol *symbol_of_host(const void *host);
cudaError_t check_range(Address address, size_t width, size_t height, size_t pitch, bool written,
                        const char *what);
cudaError_t allocate(void **pointer, size_t size, void *stream, const char *call);

/* streams.c */
Stream *stream_of(cudaStream_t handle);
cudaError_t submit(cudaStream_t handle, Op op, Node **node);
cudaError_t submit_synchronous(Op op, bool host_waits);
void barrier_stream(Stream *stream);
void barrier_all(void);
void begin_phase(int phase);
void end_phase(void);
int emit(Stream *stream, Op op);
void enter_stream(Stream *stream);
int record_on(Stream *stream);
void wait_on(Stream *stream, int event, int source, int position);
Stream *new_stream(unsigned flags, int priority, bool internal);
bool is_legacy(cudaStream_t handle);
void before_legacy(void);
void after_legacy(void);
cudaError_t check_not_captured(const char *call);

/* graphs.c */
Node *add_node(Graph *graph, Op op, Node *const *needs, int count);
void set_tips(NodeSet *set, Node *const *nodes, int count);
void add_tips(NodeSet *set, Node *const *nodes, int count);
Graph *new_graph(void);
void add_need(Node *node, Node *before);
void append_copy(Graph *to, const Graph *from, Node *const *roots, int root_count, NodeSet *sinks);

/* launch.c */
Kernel *kernel_of(const void *function);
cudaError_t make_launch(const void *function, dim3 grid, dim3 block, void **arguments, size_t dynamic,
                        cudaStream_t stream, const cudaLaunchAttribute *attributes, unsigned count,
                        bool cooperative, Launch **made);
cudaError_t apply_attribute(Launch *launch, const cudaLaunchAttribute *attribute);
cudaError_t check_launch(Launch *launch);
cudaError_t copy_op(Op *op, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                    size_t height, enum cudaMemcpyKind kind, const char *call);
cudaError_t copy_3d_op(const struct cudaMemcpy3DParms *p, Op *op, const char *call);
cudaError_t memset_op(Op *op, void *to, size_t pitch, unsigned value, unsigned element, size_t width,
                      size_t height, const char *call);

/* output.c */
void read_request(void);
void write_recording(FILE *out, FILE *blob);

#endif
