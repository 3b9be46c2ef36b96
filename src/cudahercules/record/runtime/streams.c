/* Streams and events, and the order that they give to operations.
 *
 * Stream 0 of the plan is the stream handed to solve. It is a blocking stream, so it and the legacy
 * default stream order each other completely: work on the default stream is put on stream 0, joined
 * with the other blocking streams before and after. Every other stream forks from the start of the
 * phase and joins stream 0 at its end. What the host waits for (synchronise, query, cudaFree) becomes
 * a barrier that all later work waits for. Records that nothing waits for are dropped when the
 * recording is written.
 */
#include "state.h"

#define FIRST_EVENT_ROOM 64

static int barrier_event[MAX_STREAMS], barrier_position[MAX_STREAMS], barrier_version;
static int legacy_event = -1, legacy_position = -1, begin_event;
static Event **events;
static int event_total, event_room;

__thread int per_thread_default; /* set while a _ptsz or _ptds twin runs */
static __thread Stream *thread_stream;

/* --- finding streams ------------------------------------------------------------------------------ */

Stream *new_stream(unsigned flags, int priority, bool internal) {
    if (S.stream_count == MAX_STREAMS) {
        refuse("more than %d streams", MAX_STREAMS);
        return NULL;
    }
    Stream *s = must_alloc(1, sizeof *s);
    s->number = S.stream_count;
    s->flags = flags;
    s->blocking = !(flags & cudaStreamNonBlocking) && !internal;
    s->alive = true;
    s->internal = internal;
    s->priority = priority;
    s->last = -1;
    for (int i = 0; i < MAX_STREAMS; i++) s->covered[i] = -1;
    return S.streams[S.stream_count++] = s;
}

bool is_legacy(cudaStream_t handle) {
    return handle == cudaStreamLegacy || (!handle && !per_thread_default);
}

Stream *stream_of(cudaStream_t handle) {
    if (is_legacy(handle)) return S.given;
    if (!handle || handle == cudaStreamPerThread) {
        if (!thread_stream) thread_stream = new_stream(cudaStreamDefault, 0, false);
        return thread_stream;
    }
    for (int i = 0; i < S.stream_count; i++)
        if ((cudaStream_t)S.streams[i] == handle && S.streams[i]->alive && !S.streams[i]->internal)
            return S.streams[i];
    fail(cudaErrorInvalidResourceHandle, "a stream that does not exist (or was destroyed) was used");
    return NULL;
}

static Event *event_of(cudaEvent_t handle) {
    for (int i = event_total - 1; i >= 0; i--) /* the latest first: loops create, use and destroy */
        if ((cudaEvent_t)events[i] == handle && events[i]->alive) return events[i];
    fail(cudaErrorInvalidResourceHandle, "an event that does not exist (or was destroyed) was used");
    return NULL;
}

/* --- the operation list ------------------------------------------------------------------------------ */

static int push(Stream *s, Op op) {
    OpList *list = &S.ops[S.phase];
    op.stream = s->number;
    list->items = must_grow(list->items, list->count, &list->room, sizeof *list->items);
    list->items[list->count] = op;
    return list->count++;
}

/* Append an operation that does work (or waits); the stream has been entered before. */
int emit(Stream *s, Op op) {
    if (S.phase < 0) {
        refuse("host code enqueues device work outside of prepare and solve (a static constructor or a thread)");
        return -1;
    }
    if (op.kind != OP_WAIT && ++S.operation_count > MAX_OPERATIONS) {
        refuse("more than %d operations", MAX_OPERATIONS);
        return -1;
    }
    return s->last = push(s, op);
}

int record_on(Stream *s) {
    if (S.phase < 0 || S.event_count > 8 * MAX_OPERATIONS) return -1;
    push(s, (Op){.kind = OP_RECORD, .event = S.event_count});
    return S.event_count++;
}

void wait_on(Stream *s, int event, int source, int position) {
    if (S.phase < 0 || event < 0 || source == s->number || s->covered[source] >= position) return;
    if (S.ops[S.phase].count > 8 * MAX_OPERATIONS) {
        refuse("more than %d operations", MAX_OPERATIONS);
        return;
    }
    emit(s, (Op){.kind = OP_WAIT, .event = event});
    s->covered[source] = position;
    s->forked = true;
}

void enter_stream(Stream *s) {
    if (S.phase < 0) return;
    if (s->seen_barriers != barrier_version) {
        for (int u = 0; u < S.stream_count; u++)
            if (barrier_event[u] >= 0) wait_on(s, barrier_event[u], u, barrier_position[u]);
        s->seen_barriers = barrier_version;
    }
    if (s->blocking && legacy_event >= 0) wait_on(s, legacy_event, 0, legacy_position);
    if (!s->forked && s != S.given) wait_on(s, begin_event, 0, 0);
    s->forked = true;
}

static void join_into_given(Stream *s) {
    if (s == S.given || !s->forked || s->last < 0 || s->last <= S.given->covered[s->number]) return;
    int event = record_on(s);
    wait_on(S.given, event, s->number, s->last);
}

void before_legacy(void) {
    enter_stream(S.given);
    for (int i = 1; i < S.stream_count; i++)
        if (S.streams[i]->blocking) join_into_given(S.streams[i]);
}

void after_legacy(void) {
    legacy_event = record_on(S.given);
    legacy_position = S.given->last;
}

void begin_phase(int phase) {
    S.phase = phase;
    legacy_event = legacy_position = -1;
    for (int i = 0; i < S.stream_count; i++) {
        Stream *s = S.streams[i];
        s->forked = s == S.given;
        s->last = -1;
        for (int u = 0; u < MAX_STREAMS; u++) s->covered[u] = -1;
    }
    for (int u = 0; u < MAX_STREAMS; u++) barrier_event[u] = -1, barrier_position[u] = -1;
    begin_event = record_on(S.given);
}

void end_phase(void) {
    for (int i = 0; i < S.stream_count; i++)
        if (S.streams[i]->capture) {
            refuse("a stream capture was begun and not ended");
            break;
        }
    for (int i = 1; i < S.stream_count; i++) join_into_given(S.streams[i]);
    S.phase = -1;
}

/* --- what the host waits for --------------------------------------------------------------------------- */

static void barrier_at(int stream, int event, int position) {
    if (event < 0 || position <= barrier_position[stream]) return;
    barrier_event[stream] = event;
    barrier_position[stream] = position;
    barrier_version++;
}

void barrier_stream(Stream *s) {
    if (S.phase >= 0 && s->forked && s->last > barrier_position[s->number])
        barrier_at(s->number, record_on(s), s->last);
}

void barrier_all(void) {
    for (int i = 0; i < S.stream_count; i++) barrier_stream(S.streams[i]);
}

cudaError_t check_not_captured(const char *call) {
    for (int i = 0; i < S.stream_count; i++) {
        Capture *capture = S.streams[i]->capture;
        if (capture && capture->mode != cudaStreamCaptureModeRelaxed)
            return fail(cudaErrorStreamCaptureUnsupported, "%s while a stream is being captured", call);
    }
    return cudaSuccess;
}

static cudaError_t check_legacy_not_captured(void) {
    for (int i = 0; i < S.stream_count; i++)
        if (S.streams[i]->capture && S.streams[i]->blocking)
            return fail(cudaErrorStreamCaptureImplicit,
                        "work on the default stream while a blocking stream is being captured");
    return cudaSuccess;
}

cudaError_t submit(cudaStream_t handle, Op op, Node **made) {
    Stream *s = stream_of(handle);
    if (!s) return S.last_error;
    bool legacy = is_legacy(handle);
    if (legacy) {
        cudaError_t code = check_legacy_not_captured();
        if (code) return code;
        before_legacy();
    } else if (s->capture) {
        Node *node = add_node(s->capture->graph, op, s->tips.nodes, s->tips.count);
        node->captured_on = s;
        set_tips(&s->tips, &node, 1);
        if (made) *made = node;
        return cudaSuccess;
    }
    enter_stream(s);
    if (emit(s, op) < 0) return cudaErrorNotSupported;
    if (legacy) after_legacy();
    return cudaSuccess;
}

cudaError_t submit_synchronous(Op op, bool host_waits) {
    cudaError_t code = submit(NULL, op, NULL);
    if (!code && host_waits) barrier_stream(stream_of(NULL));
    return code;
}

static cudaError_t host_waits_for(cudaStream_t handle, const char *call) {
    Stream *s = stream_of(handle);
    if (!s) return S.last_error;
    if (s->capture && !is_legacy(handle))
        return fail(cudaErrorStreamCaptureUnsupported, "%s on a stream that is being captured", call);
    if (is_legacy(handle))
        for (int i = 0; i < S.stream_count; i++)
            if (S.streams[i]->blocking) barrier_stream(S.streams[i]);
    barrier_stream(s);
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceSynchronize(void) {
    ENTER;
    cudaError_t code = check_not_captured("cudaDeviceSynchronize");
    if (!code) barrier_all();
    return code;
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    ENTER;
    return host_waits_for(handle, "cudaStreamSynchronize");
}

/* While recording, all work counts as finished at once; the answer "finished" binds later work. */
EXPORT cudaError_t cudaStreamQuery(cudaStream_t handle) {
    ENTER;
    return host_waits_for(handle, "cudaStreamQuery");
}

/* --- making streams --------------------------------------------------------------------------------------- */

static int clamp_priority(int priority) { return priority > 0 ? 0 : priority < -5 ? -5 : priority; }

EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *handle, unsigned flags, int priority) {
    ENTER;
    if (flags & ~(unsigned)cudaStreamNonBlocking)
        return fail(cudaErrorInvalidValue, "cudaStreamCreate: flags 0x%x", flags);
    Stream *s = new_stream(flags, clamp_priority(priority), false);
    *handle = (cudaStream_t)s;
    return s ? cudaSuccess : S.last_error;
}

EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *handle, unsigned flags) {
    return cudaStreamCreateWithPriority(handle, flags, 0);
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t *handle) { return cudaStreamCreateWithPriority(handle, 0, 0); }

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    ENTER;
    Stream *s = stream_of(handle);
    if (!s) return S.last_error;
    if (s == S.given || s == thread_stream)
        return fail(cudaErrorInvalidResourceHandle, "cudaStreamDestroy of a stream that solve does not own");
    s->alive = false;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *flags) {
    ENTER;
    Stream *s = stream_of(handle);
    if (s) *flags = s->flags;
    return s ? cudaSuccess : S.last_error;
}

EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) {
    ENTER;
    Stream *s = stream_of(handle);
    if (s) *priority = s->priority;
    return s ? cudaSuccess : S.last_error;
}

EXPORT cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long *id) {
    ENTER;
    Stream *s = stream_of(handle);
    if (s) *id = (unsigned long long)s->number + 1;
    return s ? cudaSuccess : S.last_error;
}

EXPORT cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *device) {
    ENTER;
    *device = 0;
    return stream_of(handle) ? cudaSuccess : S.last_error;
}

EXPORT cudaError_t cudaStreamSetAttribute(cudaStream_t handle, cudaStreamAttrID attribute,
                                          const cudaStreamAttrValue *value) {
    ENTER;
    Stream *s = stream_of(handle);
    if (!s) return S.last_error;
    switch (attribute) {
    case cudaLaunchAttributeAccessPolicyWindow: s->window = value->accessPolicyWindow; return cudaSuccess;
    case cudaLaunchAttributePriority: s->priority = clamp_priority(value->priority); return cudaSuccess;
    case cudaLaunchAttributeSynchronizationPolicy: s->sync_policy = (int)value->syncPolicy; return cudaSuccess;
    case cudaLaunchAttributeMemSyncDomain:
    case cudaLaunchAttributeMemSyncDomainMap: return cudaSuccess; /* without a second domain no effect */
    default: return refuse("cudaStreamSetAttribute: attribute %d is not available", (int)attribute);
    }
}

EXPORT cudaError_t cudaStreamGetAttribute(cudaStream_t handle, cudaStreamAttrID attribute,
                                          cudaStreamAttrValue *value) {
    ENTER;
    Stream *s = stream_of(handle);
    if (!s) return S.last_error;
    memset(value, 0, sizeof *value);
    switch (attribute) {
    case cudaLaunchAttributeAccessPolicyWindow: value->accessPolicyWindow = s->window; return cudaSuccess;
    case cudaLaunchAttributePriority: value->priority = s->priority; return cudaSuccess;
    case cudaLaunchAttributeSynchronizationPolicy:
        value->syncPolicy = s->sync_policy ? (enum cudaSynchronizationPolicy)s->sync_policy : cudaSyncPolicyAuto;
        return cudaSuccess;
    default: return refuse("cudaStreamGetAttribute: attribute %d is not available", (int)attribute);
    }
}

EXPORT cudaError_t cudaStreamCopyAttributes(cudaStream_t to, cudaStream_t from) {
    ENTER;
    Stream *a = stream_of(to), *b = stream_of(from);
    if (!a || !b) return S.last_error;
    a->window = b->window, a->priority = b->priority, a->sync_policy = b->sync_policy;
    return cudaSuccess;
}

/* --- events -------------------------------------------------------------------------------------------------- */

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *handle, unsigned flags) {
    ENTER;
    if (flags & cudaEventInterprocess) return refuse("events between processes are not available");
    if (event_total >= MAX_OPERATIONS) return refuse("more than %d events", MAX_OPERATIONS);
    events = must_grow(events, event_total, &event_room, sizeof *events);
    Event *e = events[event_total++] = must_alloc(1, sizeof *e);
    *e = (Event){.alive = true, .flags = flags, .phase = -1};
    *handle = (cudaEvent_t)e;
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventCreate(cudaEvent_t *handle) { return cudaEventCreateWithFlags(handle, 0); }

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    ENTER;
    Event *e = event_of(handle);
    if (!e) return S.last_error;
    e->alive = false;
    return cudaSuccess;
}

static cudaError_t record_event(cudaEvent_t event, cudaStream_t handle) {
    Event *e = event_of(event);
    Stream *s = stream_of(handle);
    if (!e || !s) return S.last_error;
    bool legacy = is_legacy(handle);
    if (s->capture && !legacy) {
        e->capture = s->capture;
        set_tips(&e->tips, s->tips.nodes, s->tips.count);
        return cudaSuccess;
    }
    if (legacy) {
        cudaError_t code = check_legacy_not_captured();
        if (code) return code;
        before_legacy();
    }
    if (S.phase < 0) return cudaSuccess;
    enter_stream(s);
    e->capture = NULL;
    e->phase = S.phase;
    e->stream = s->number;
    e->position = s->last;
    e->plan_event = record_on(s);
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    ENTER;
    return record_event(event, handle);
}

EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned flags) {
    ENTER;
    if (flags) return refuse("cudaEventRecordWithFlags: external events in graphs are not available");
    return record_event(event, handle);
}

static cudaError_t wait_captured(Stream *s, Event *e) {
    if (e->capture && !e->capture->active)
        return fail(cudaErrorInvalidValue, "cudaStreamWaitEvent: the event was recorded in a capture that has ended");
    if (!e->capture)
        return fail(cudaErrorStreamCaptureIsolation,
                    "cudaStreamWaitEvent: a stream under capture waits for an event from outside the capture");
    if (s->capture && s->capture != e->capture)
        return fail(cudaErrorStreamCaptureMerge, "cudaStreamWaitEvent would merge two captures");
    if (!s->capture) set_tips(&s->tips, NULL, 0);
    s->capture = e->capture;
    add_tips(&s->tips, e->tips.nodes, e->tips.count);
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
    ENTER;
    if (flags) return refuse("cudaStreamWaitEvent: external events in graphs are not available");
    Event *e = event_of(event);
    Stream *s = stream_of(handle);
    if (!e || !s) return S.last_error;
    bool legacy = is_legacy(handle);
    if (!legacy && (s->capture || e->capture)) return wait_captured(s, e);
    if (e->capture) return fail(cudaErrorStreamCaptureImplicit, "the default stream cannot join a capture");
    if (e->phase != S.phase || S.phase < 0) return cudaSuccess; /* never recorded, or long complete */
    if (legacy) before_legacy();
    wait_on(s, e->plan_event, e->stream, e->position);
    if (legacy) after_legacy();
    return cudaSuccess;
}

static cudaError_t host_waits_for_event(cudaEvent_t event, const char *call) {
    Event *e = event_of(event);
    if (!e) return S.last_error;
    if (e->capture) return fail(cudaErrorCapturedEvent, "%s: the event was recorded in a capture", call);
    if (e->phase == S.phase && S.phase >= 0) barrier_at(e->stream, e->plan_event, e->position);
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    ENTER;
    return host_waits_for_event(event, "cudaEventSynchronize");
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
    ENTER;
    return host_waits_for_event(event, "cudaEventQuery");
}
