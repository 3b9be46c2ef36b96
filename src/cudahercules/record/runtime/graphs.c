/* Graphs: built by stream capture or by hand, and inlined into the plan at each launch.
 *
 * A captured stream is a set of tips (the nodes that its next operation depends on), as in CUDA. A
 * launch walks the nodes in topological order and lays them onto chains: the first chain is the
 * launching stream, each further one a side stream of it, with events for the edges in between.
 */
#include "state.h"

#define MAX_CHAINS 64

Graph *new_graph(void) {
    Graph *graph = must_alloc(1, sizeof *graph);
    graph->alive = true;
    return graph;
}

void add_need(Node *node, Node *before) {
    for (int i = 0; i < node->need_count; i++)
        if (node->needs[i] == before) return;
    node->needs = must_grow(node->needs, node->need_count, &node->need_room, sizeof *node->needs);
    node->needs[node->need_count++] = before;
}

Node *add_node(Graph *graph, Op op, Node *const *needs, int count) {
    if (graph->count >= MAX_OPERATIONS) refuse("a graph has more than %d nodes", MAX_OPERATIONS);
    Node *node = must_alloc(1, sizeof *node);
    node->graph = graph;
    node->index = graph->count;
    node->op = op;
    for (int i = 0; i < count; i++) add_need(node, needs[i]);
    graph->nodes = must_grow(graph->nodes, graph->count, &graph->room, sizeof *graph->nodes);
    return graph->nodes[graph->count++] = node;
}

void set_tips(NodeSet *set, Node *const *nodes, int count) {
    Node **copy = must_alloc((size_t)count, sizeof *copy);
    if (count) memcpy(copy, nodes, (size_t)count * sizeof *copy);
    free(set->nodes);
    *set = (NodeSet){copy, count};
}

void add_tips(NodeSet *set, Node *const *nodes, int count) {
    Node **all = must_alloc((size_t)(set->count + count), sizeof *all);
    int total = 0;
    for (int i = 0; i < set->count + count; i++) {
        Node *node = i < set->count ? set->nodes[i] : nodes[i - set->count];
        bool there = false;
        for (int k = 0; k < total; k++) there |= all[k] == node;
        if (!there) all[total++] = node;
    }
    free(set->nodes);
    *set = (NodeSet){all, total};
}

/* Copies of all nodes of from, in to; nodes without needs come to depend on roots. */
void append_copy(Graph *to, const Graph *from, Node *const *roots, int root_count, NodeSet *sinks) {
    int base = to->count;
    bool *inner = must_alloc((size_t)from->count, sizeof *inner);
    for (int i = 0; i < from->count; i++)
        add_node(to, from->nodes[i]->op, NULL, 0)->captured_on = from->nodes[i]->captured_on;
    for (int i = 0; i < from->count; i++) {
        Node *copy = to->nodes[base + i];
        for (int k = 0; k < from->nodes[i]->need_count; k++) {
            int index = from->nodes[i]->needs[k]->index;
            add_need(copy, to->nodes[base + index]);
            inner[index] = true;
        }
        if (!copy->need_count)
            for (int k = 0; k < root_count; k++) add_need(copy, roots[k]);
    }
    if (sinks)
        for (int i = 0; i < from->count; i++)
            if (!inner[i]) add_tips(sinks, &to->nodes[base + i], 1);
    free(inner);
}

/* --- capture ------------------------------------------------------------------------------------------ */

static cudaError_t begin_capture(cudaStream_t handle, Graph *graph, const cudaGraphNode_t *needs, size_t count,
                                 enum cudaStreamCaptureMode mode) {
    if (is_legacy(handle))
        return fail(cudaErrorStreamCaptureUnsupported, "the legacy default stream cannot be captured");
    Stream *s = stream_of(handle);
    if (!s) return S.last_error;
    if (s->capture) return fail(cudaErrorIllegalState, "cudaStreamBeginCapture: the stream is being captured already");
    Capture *capture = must_alloc(1, sizeof *capture);
    *capture = (Capture){.graph = graph, .origin = s, .mode = mode, .id = ++S.capture_ids, .active = true};
    s->capture = capture;
    set_tips(&s->tips, (Node *const *)needs, (int)count);
    S.capture_count++;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
    ENTER;
    return begin_capture(handle, new_graph(), NULL, 0, mode);
}

EXPORT cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t handle, cudaGraph_t graph,
                                                 const cudaGraphNode_t *needs, const cudaGraphEdgeData *edges,
                                                 size_t count, enum cudaStreamCaptureMode mode) {
    ENTER;
    if (edges) return refuse("cudaStreamBeginCaptureToGraph: edge data is not available");
    return begin_capture(handle, (Graph *)graph, needs, count, mode);
}

/* Marks everything that the tips depend on. Captured nodes need earlier nodes only: one sweep is enough. */
static bool *reached_from(const Graph *graph, const NodeSet *tips) {
    bool *seen = must_alloc((size_t)graph->count, sizeof *seen);
    for (int i = 0; i < tips->count; i++) seen[tips->nodes[i]->index] = true;
    for (int i = graph->count - 1; i >= 0; i--)
        for (int k = 0; seen[i] && k < graph->nodes[i]->need_count; k++) seen[graph->nodes[i]->needs[k]->index] = true;
    return seen;
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph) {
    ENTER;
    Stream *s = stream_of(handle);
    if (!s) return S.last_error;
    Capture *capture = is_legacy(handle) ? NULL : s->capture;
    if (!capture) return fail(cudaErrorIllegalState, "cudaStreamEndCapture: the stream is not being captured");
    if (capture->origin != s)
        return fail(cudaErrorStreamCaptureUnmatched, "cudaStreamEndCapture on a stream that did not begin the capture");
    bool *seen = reached_from(capture->graph, &s->tips), joined = true;
    for (int i = 0; i < S.stream_count; i++) {
        Stream *other = S.streams[i];
        if (other->capture != capture) continue;
        for (int k = 0; k < other->tips.count; k++) joined &= seen[other->tips.nodes[k]->index];
        other->capture = NULL;
    }
    free(seen);
    capture->active = false;
    S.capture_count--;
    *graph = NULL;
    if (!joined)
        return fail(cudaErrorStreamCaptureUnjoined, "cudaStreamEndCapture: a forked stream was not joined");
    *graph = (cudaGraph_t)capture->graph;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, enum cudaStreamCaptureStatus *status,
                                            unsigned long long *id, cudaGraph_t *graph,
                                            const cudaGraphNode_t **needs, const cudaGraphEdgeData **edges,
                                            size_t *count) {
    ENTER;
    Stream *s = stream_of(handle);
    if (!s) return S.last_error;
    Capture *capture = is_legacy(handle) ? NULL : s->capture;
    *status = capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    if (!capture) return cudaSuccess;
    if (id) *id = capture->id;
    if (graph) *graph = (cudaGraph_t)capture->graph;
    if (needs) *needs = (const cudaGraphNode_t *)s->tips.nodes;
    if (edges) *edges = NULL;
    if (count) *count = (size_t)s->tips.count;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status) {
    return cudaStreamGetCaptureInfo(handle, status, NULL, NULL, NULL, NULL, NULL);
}

EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    static __thread enum cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
    enum cudaStreamCaptureMode previous = current;
    current = *mode;
    *mode = previous;
    return cudaSuccess;
}

/* --- instantiate and launch ----------------------------------------------------------------------------------- */

EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
    ENTER;
    if (!graph) return fail(cudaErrorInvalidValue, "cudaGraphInstantiate: no graph");
    if (flags & cudaGraphInstantiateFlagDeviceLaunch) return refuse("launches of graphs from device code are not available");
    Graph *copy = new_graph();
    append_copy(copy, (Graph *)graph, NULL, 0, NULL);
    *exec = (cudaGraphExec_t)copy;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

EXPORT cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *exec, cudaGraph_t graph,
                                                  cudaGraphInstantiateParams *parameters) {
    cudaError_t code = cudaGraphInstantiateWithFlags(exec, graph, parameters->flags);
    parameters->result_out = code ? cudaGraphInstantiateError : cudaGraphInstantiateSuccess;
    parameters->errNode_out = NULL;
    return code;
}

EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { (void)exec; return cudaSuccess; }
EXPORT cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) { (void)exec, (void)stream; return cudaSuccess; }

/* Indices of the nodes in an order that respects all edges; NULL if there is a cycle. */
static int *topological(const Graph *graph) {
    int *order = must_alloc((size_t)graph->count, sizeof *order), done = 0;
    bool *placed = must_alloc((size_t)graph->count, sizeof *placed);
    while (done < graph->count) {
        int before = done;
        for (int i = 0; i < graph->count; i++) {
            if (placed[i]) continue;
            bool ready = true;
            for (int k = 0; k < graph->nodes[i]->need_count; k++) ready &= placed[graph->nodes[i]->needs[k]->index];
            if (ready) placed[i] = true, order[done++] = i;
        }
        if (done == before) {
            free(order), free(placed);
            return NULL;
        }
    }
    free(placed);
    return order;
}

static Stream *side_stream(Stream *s, int chain) {
    if (chain == 0) return s;
    if (!s->side[chain]) s->side[chain] = new_stream(cudaStreamNonBlocking, 0, true);
    return s->side[chain];
}

/* Prefer the chain whose last node this one needs and follows on the same captured stream (so that
 * programmatic launches keep their predecessor); else an unused one; else the launching stream. */
static int choose_chain(const Node *node, Node *const *last, int *chains) {
    for (int i = 0; i < node->need_count; i++) {
        const Node *before = node->needs[i];
        if (last[before->chain] == before && before->captured_on == node->captured_on) return before->chain;
    }
    return *chains < MAX_CHAINS ? (*chains)++ : 0;
}

static void inline_graph(Graph *graph, const int *order, Stream *s) {
    Node *last[MAX_CHAINS] = {0};
    int chains = 0, start = record_on(s), start_position = s->last;
    for (int i = 0; i < graph->count; i++) {
        Node *node = graph->nodes[order[i]];
        int before = chains;
        node->chain = choose_chain(node, last, &chains);
        Stream *on = side_stream(s, node->chain);
        if (!on) return;
        if (chains > before && !node->need_count) wait_on(on, start, s->number, start_position);
        for (int k = 0; k < node->need_count; k++) {
            const Node *n = node->needs[k];
            if (n->chain != node->chain) wait_on(on, n->event, side_stream(s, n->chain)->number, n->position);
        }
        if (!on->forked) enter_stream(on);
        last[node->chain] = node;
        Op op = node->op;
        if (op.kind == OP_KERNEL && op.launch->programmatic && !node->need_count) {
            /* A graph's first kernel cannot overlap what came before the graph. */
            Launch *copy = must_alloc(1, sizeof *copy);
            *copy = *op.launch;
            copy->programmatic = false;
            op.launch = copy;
        }
        if (op.kind != OP_EMPTY && emit(on, op) < 0) return;
        if (op.kind == OP_KERNEL) S.launches++;
        node->position = on->last;
        node->event = record_on(on);
    }
    for (int c = 1; c < chains; c++) {
        Stream *on = side_stream(s, c);
        wait_on(s, record_on(on), on->number, on->last);
    }
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
    ENTER;
    Graph *graph = (Graph *)exec;
    Stream *s = stream_of(handle);
    if (!s) return S.last_error;
    if (!graph) return fail(cudaErrorInvalidValue, "cudaGraphLaunch: no graph");
    bool legacy = is_legacy(handle);
    if (s->capture && !legacy) {
        NodeSet sinks = {0};
        append_copy(s->capture->graph, graph, s->tips.nodes, s->tips.count, &sinks);
        if (sinks.count) set_tips(&s->tips, sinks.nodes, sinks.count);
        return cudaSuccess;
    }
    if (S.phase < 0) return refuse("host code launches a graph outside of prepare and solve");
    int *order = topological(graph);
    if (!order) return fail(cudaErrorInvalidValue, "cudaGraphLaunch: the graph has a cycle");
    if (legacy) before_legacy();
    enter_stream(s);
    inline_graph(graph, order, s);
    if (legacy) after_legacy();
    free(order);
    return cudaSuccess;
}
