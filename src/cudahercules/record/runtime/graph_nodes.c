/* Graphs built by hand, node by node. Child graphs are unfolded into their parent when they are added. */
#include "state.h"

EXPORT cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags) {
    ENTER;
    if (flags) return fail(cudaErrorInvalidValue, "cudaGraphCreate: flags %u", flags);
    *graph = (cudaGraph_t)new_graph();
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) { (void)graph; return cudaSuccess; }

static cudaError_t add_by_hand(cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *needs, size_t count,
                               Op op) {
    *made = (cudaGraphNode_t)add_node((Graph *)graph, op, (Node *const *)needs, (int)count);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *needs,
                                         size_t count) {
    ENTER;
    return add_by_hand(made, graph, needs, count, (Op){.kind = OP_EMPTY});
}

static cudaError_t kernel_op(const struct cudaKernelNodeParams *p, Op *op) {
    if (p->extra) return refuse("kernel parameters in the \"extra\" form are not available");
    *op = (Op){.kind = OP_KERNEL};
    return make_launch(p->func, p->gridDim, p->blockDim, p->kernelParams, p->sharedMemBytes, NULL, NULL, 0, false,
                       &op->launch);
}

EXPORT cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *needs,
                                          size_t count, const struct cudaKernelNodeParams *p) {
    ENTER;
    Op op;
    cudaError_t code = kernel_op(p, &op);
    return code ? code : add_by_hand(made, graph, needs, count, op);
}

EXPORT cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *needs,
                                          size_t count, const struct cudaMemcpy3DParms *p) {
    ENTER;
    Op op;
    cudaError_t code = copy_3d_op(p, &op, "cudaGraphAddMemcpyNode");
    return code ? code : add_by_hand(made, graph, needs, count, op);
}

EXPORT cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *needs,
                                            size_t count, void *to, const void *from, size_t size,
                                            enum cudaMemcpyKind kind) {
    ENTER;
    Op op;
    cudaError_t code = copy_op(&op, to, size, from, size, size, 1, kind, "cudaGraphAddMemcpyNode1D");
    return code ? code : add_by_hand(made, graph, needs, count, op);
}

EXPORT cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *needs,
                                          size_t count, const struct cudaMemsetParams *p) {
    ENTER;
    Op op;
    cudaError_t code = memset_op(&op, p->dst, p->pitch, p->value, p->elementSize, p->width, p->height,
                                 "cudaGraphAddMemsetNode");
    return code ? code : add_by_hand(made, graph, needs, count, op);
}

EXPORT cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *needs,
                                              size_t count, cudaGraph_t child) {
    ENTER;
    NodeSet sinks = {0};
    Node *entry = add_node((Graph *)graph, (Op){.kind = OP_EMPTY}, (Node *const *)needs, (int)count);
    append_copy((Graph *)graph, (Graph *)child, &entry, 1, &sinks);
    if (!sinks.count) add_tips(&sinks, &entry, 1);
    *made = (cudaGraphNode_t)add_node((Graph *)graph, (Op){.kind = OP_EMPTY}, sinks.nodes, sinks.count);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                            const cudaGraphEdgeData *edges, size_t count) {
    ENTER;
    (void)graph;
    if (edges) return refuse("cudaGraphAddDependencies: edge data is not available");
    for (size_t i = 0; i < count; i++) add_need((Node *)to[i], (Node *)from[i]);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphAddNode(cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *needs,
                                    const cudaGraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *p) {
    ENTER;
    if (edges) return refuse("cudaGraphAddNode: edge data is not available");
    if (p->type == cudaGraphNodeTypeKernel) {
        struct cudaKernelNodeParams k = {p->kernel.func,           p->kernel.gridDim,      p->kernel.blockDim,
                                         p->kernel.sharedMemBytes, p->kernel.kernelParams, p->kernel.extra};
        return cudaGraphAddKernelNode(made, graph, needs, count, &k);
    }
    if (p->type == cudaGraphNodeTypeMemcpy)
        return cudaGraphAddMemcpyNode(made, graph, needs, count, &p->memcpy.copyParams);
    if (p->type == cudaGraphNodeTypeMemset) {
        struct cudaMemsetParams m = {p->memset.dst,         p->memset.pitch, p->memset.value,
                                     p->memset.elementSize, p->memset.width, p->memset.height};
        return cudaGraphAddMemsetNode(made, graph, needs, count, &m);
    }
    if (p->type == cudaGraphNodeTypeEmpty) return cudaGraphAddEmptyNode(made, graph, needs, count);
    if (p->type == cudaGraphNodeTypeGraph)
        return cudaGraphAddChildGraphNode(made, graph, needs, count, p->graph.graph);
    return refuse("cudaGraphAddNode: nodes of type %d are not available", (int)p->type);
}

EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t *nodes, size_t *count) {
    ENTER;
    Graph *graph = (Graph *)handle;
    if (nodes)
        for (size_t i = 0; i < *count; i++) nodes[i] = i < (size_t)graph->count ? (cudaGraphNode_t)graph->nodes[i] : NULL;
    if (!nodes || *count > (size_t)graph->count) *count = (size_t)graph->count;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                    const struct cudaKernelNodeParams *p) {
    ENTER;
    int index = ((Node *)node)->index;
    Graph *graph = (Graph *)exec;
    if (index >= graph->count || graph->nodes[index]->op.kind != OP_KERNEL)
        return fail(cudaErrorInvalidValue, "cudaGraphExecKernelNodeSetParams: no such kernel node");
    return kernel_op(p, &graph->nodes[index]->op);
}

EXPORT cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t node, cudaKernelNodeAttrID attribute,
                                                   const cudaKernelNodeAttrValue *value) {
    ENTER;
    Node *n = (Node *)node;
    if (n->op.kind != OP_KERNEL) return fail(cudaErrorInvalidValue, "cudaGraphKernelNodeSetAttribute: no kernel node");
    Launch *changed = must_alloc(1, sizeof *changed);
    *changed = *n->op.launch;
    cudaLaunchAttribute one = {.id = attribute, .val = *value};
    cudaError_t code = apply_attribute(changed, &one);
    if (!code) code = check_launch(changed);
    if (!code) n->op.launch = changed;
    return code;
}

EXPORT cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type) {
    static const enum cudaGraphNodeType types[] = {
        [OP_EMPTY] = cudaGraphNodeTypeEmpty,   [OP_KERNEL] = cudaGraphNodeTypeKernel,
        [OP_MEMSET] = cudaGraphNodeTypeMemset, [OP_COPY] = cudaGraphNodeTypeMemcpy,
        [OP_UPLOAD] = cudaGraphNodeTypeMemcpy,
    };
    ENTER;
    *type = types[((Node *)node)->op.kind];
    return cudaSuccess;
}
