/* Kernel launches: what hardware would refuse is refused here, with the reason. */
#include "state.h"

typedef struct { dim3 grid, block; size_t shared; cudaStream_t stream; } Configuration;
static __thread Configuration pushed[16];
static __thread int pushed_count;

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
    if (pushed_count == 16) return 1;
    pushed[pushed_count++] = (Configuration){grid, block, shared, stream};
    return 0;
}

EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (!pushed_count) return cudaErrorMissingConfiguration;
    Configuration *c = &pushed[--pushed_count];
    *grid = c->grid, *block = c->block, *shared = c->shared;
    *(cudaStream_t *)stream = c->stream;
    return cudaSuccess;
}

#define REJECT(code, format, ...)                                                                              \
    return S.failed_launches++,                                                                                \
           fail(code, "launch %d of kernel %s: " format, S.launches + S.failed_launches, k->name, __VA_ARGS__)

static cudaError_t check_shape(const Launch *l) {
    const Kernel *k = l->kernel;
    static const int grid_limits[3] = {5, 6, 7}, block_limits[3] = {2, 3, 4};
    for (int i = 0; i < 3; i++) {
        int grid = 0, block = 0;
        if (!attribute_of(grid_limits[i], &grid) || !attribute_of(block_limits[i], &block))
            return refuse("the profile of %s lacks a launch limit", S.profile.name);
        if (!l->grid[i] || l->grid[i] > (unsigned)grid)
            REJECT(cudaErrorInvalidConfiguration, "grid %c is %u, it must be 1 to %d", "xyz"[i], l->grid[i], grid);
        if (!l->block[i] || l->block[i] > (unsigned)block)
            REJECT(cudaErrorInvalidConfiguration, "block %c is %u, it must be 1 to %d", "xyz"[i], l->block[i], block);
    }
    uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
    int most = 1024;
    attribute_of(cudaDevAttrMaxThreadsPerBlock, &most);
    if (threads > (uint64_t)most)
        REJECT(cudaErrorInvalidConfiguration, "%llu threads a block, the device allows %d", (unsigned long long)threads, most);
    if (threads > (uint64_t)k->max_threads)
        REJECT(cudaErrorInvalidConfiguration, "%llu threads a block, its launch bounds allow %d",
               (unsigned long long)threads, k->max_threads);
    if (k->block[0] && memcmp(k->block, l->block, sizeof k->block))
        REJECT(cudaErrorInvalidConfiguration, "a block of %u x %u x %u, the kernel requires %u x %u x %u", l->block[0],
               l->block[1], l->block[2], k->block[0], k->block[1], k->block[2]);
    if (l->dynamic_shared > (size_t)k->max_dynamic)
        REJECT(cudaErrorInvalidValue,
               "%zu bytes of dynamic shared memory, %d are allowed (more needs cudaFuncSetAttribute with "
               "cudaFuncAttributeMaxDynamicSharedMemorySize)", l->dynamic_shared, k->max_dynamic);
    if (occupancy_blocks(k, (int)threads, l->dynamic_shared) < 1) {
        if (S.contract[0]) return cudaErrorNotSupported;
        REJECT(cudaErrorLaunchOutOfResources,
               "a block of %llu threads with %d registers each and %zu bytes of shared memory does not fit on an SM",
               (unsigned long long)threads, k->registers, l->dynamic_shared + (size_t)k->static_shared);
    }
    return cudaSuccess;
}

static cudaError_t check_cluster(Launch *l) {
    const Kernel *k = l->kernel;
    const unsigned *fixed = k->cluster[0] ? k->cluster : k->required;
    if (fixed[0]) {
        if (l->cluster[0] && memcmp(l->cluster, fixed, sizeof l->cluster))
            REJECT(cudaErrorInvalidClusterSize, "cluster %u x %u x %u, the kernel requires %u x %u x %u", l->cluster[0],
                   l->cluster[1], l->cluster[2], fixed[0], fixed[1], fixed[2]);
        memcpy(l->cluster, fixed, sizeof l->cluster);
    }
    if (!l->cluster[0] && !l->cluster[1] && !l->cluster[2]) {
        if (k->must_set_cluster) REJECT(cudaErrorInvalidClusterSize, "the kernel must be launched with a cluster%s", "");
        return cudaSuccess;
    }
    int supported = 0;
    if (!attribute_of(cudaDevAttrClusterLaunch, &supported) || !supported)
        REJECT(cudaErrorInvalidValue, "%s has no clusters", S.profile.name);
    uint64_t size = 1;
    for (int i = 0; i < 3; i++) {
        if (!l->cluster[i] || l->cluster[i] > 16)
            REJECT(cudaErrorInvalidClusterSize, "cluster %c is %u", "xyz"[i], l->cluster[i]);
        if (l->grid[i] % l->cluster[i])
            REJECT(cudaErrorInvalidClusterSize, "grid %c (%u) is no multiple of cluster %c (%u)", "xyz"[i], l->grid[i],
                   "xyz"[i], l->cluster[i]);
        size *= l->cluster[i];
        if (l->preferred[0] && (!l->preferred[i] || l->preferred[i] % l->cluster[i] || l->grid[i] % l->preferred[i]))
            REJECT(cudaErrorInvalidClusterSize, "preferred cluster %c (%u) must be a multiple of the cluster's and divide "
                   "the grid's", "xyz"[i], l->preferred[i]);
    }
    unsigned most = k->non_portable ? 16 : 8;
    if (size > most)
        REJECT(cudaErrorInvalidClusterSize, "a cluster of %llu blocks, %u are allowed%s", (unsigned long long)size, most,
               k->non_portable ? "" : " (up to 16 with cudaFuncAttributeNonPortableClusterSizeAllowed)");
    int threads = (int)(l->block[0] * l->block[1] * l->block[2]);
    if (S.profile.gpc_count && occupancy_clusters(k, threads, l->dynamic_shared, (int)size) < 1)
        REJECT(cudaErrorInvalidClusterSize, "no cluster of %llu such blocks fits on the device", (unsigned long long)size);
    return cudaSuccess;
}

static cudaError_t check_cooperative(const Launch *l) {
    const Kernel *k = l->kernel;
    int sms = 0, threads = (int)(l->block[0] * l->block[1] * l->block[2]);
    if (!attribute_of(cudaDevAttrMultiProcessorCount, &sms))
        return refuse("the profile of %s lacks its number of SMs", S.profile.name);
    uint64_t blocks = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    char question[2048];
    snprintf(question, sizeof question, "occupancy %s %d %zu 0", k->name, threads, l->dynamic_shared);
    int per_sm = (int)told_or(question, occupancy_blocks(k, threads, l->dynamic_shared));
    uint64_t room = (uint64_t)sms * (uint64_t)per_sm;
    unsigned cluster = l->cluster[0] * l->cluster[1] * l->cluster[2];
    if (cluster > 1)
        room = (uint64_t)occupancy_clusters(k, threads, l->dynamic_shared, (int)cluster) * cluster;
    if (blocks > room)
        REJECT(cudaErrorCooperativeLaunchTooLarge, "a cooperative grid of %llu blocks, %llu fit on the device at once",
               (unsigned long long)blocks, (unsigned long long)room);
    if (cluster <= 1) answer(question, "%d", per_sm);
    return cudaSuccess;
}

cudaError_t check_launch(Launch *l) {
    cudaError_t code = check_shape(l);
    if (!code) code = check_cluster(l);
    return code || !l->cooperative ? code : check_cooperative(l);
}

static cudaError_t set_window(Launch *l, const struct cudaAccessPolicyWindow *window) {
    const Kernel *k = l->kernel;
    if (!window->num_bytes) return cudaSuccess;
    int most = 0;
    attribute_of(cudaDevAttrMaxAccessPolicyWindowSize, &most);
    if (window->num_bytes > (size_t)most)
        REJECT(cudaErrorInvalidValue, "an access policy window of %zu bytes, the device allows %d", window->num_bytes, most);
    if (!(window->hitRatio >= 0 && window->hitRatio <= 1))
        REJECT(cudaErrorInvalidValue, "the access policy window's hit ratio is outside 0 to 1%s", "");
    if (!region_of((Address)window->base_ptr, 0) && !symbol_at((Address)window->base_ptr, 0))
        REJECT(cudaErrorInvalidValue, "the access policy window begins in no buffer%s", "");
    l->window = *window;
    l->has_window = true;
    return cudaSuccess;
}

/* Events that fire inside a kernel are recorded after it: later than asked, and so never too early. */
static cudaEvent_t inner_event;

cudaError_t apply_attribute(Launch *l, const cudaLaunchAttribute *a) {
    const cudaLaunchAttributeValue *v = &a->val;
    switch (a->id) {
    case cudaLaunchAttributeIgnore: return cudaSuccess;
    case cudaLaunchAttributeAccessPolicyWindow: return set_window(l, &v->accessPolicyWindow);
    case cudaLaunchAttributeCooperative: l->cooperative = v->cooperative != 0; return cudaSuccess;
    case cudaLaunchAttributeClusterDimension:
        l->cluster[0] = v->clusterDim.x, l->cluster[1] = v->clusterDim.y, l->cluster[2] = v->clusterDim.z;
        return cudaSuccess;
    case cudaLaunchAttributePreferredClusterDimension:
        l->preferred[0] = v->preferredClusterDim.x, l->preferred[1] = v->preferredClusterDim.y;
        l->preferred[2] = v->preferredClusterDim.z;
        return cudaSuccess;
    case cudaLaunchAttributeClusterSchedulingPolicyPreference:
        l->policy = (int)v->clusterSchedulingPolicyPreference;
        return cudaSuccess;
    case cudaLaunchAttributeProgrammaticStreamSerialization:
        l->programmatic = v->programmaticStreamSerializationAllowed != 0;
        return cudaSuccess;
    case cudaLaunchAttributePriority:
        l->priority = v->priority > 0 ? 0 : v->priority < -5 ? -5 : v->priority;
        return cudaSuccess;
    case cudaLaunchAttributePreferredSharedMemoryCarveout:
        l->carveout = (int)v->sharedMemCarveout;
        return cudaSuccess;
    case cudaLaunchAttributeProgrammaticEvent: inner_event = v->programmaticEvent.event; return cudaSuccess;
    case cudaLaunchAttributeLaunchCompletionEvent: inner_event = v->launchCompletionEvent.event; return cudaSuccess;
    case cudaLaunchAttributeSynchronizationPolicy:
    case cudaLaunchAttributeMemSyncDomain:
    case cudaLaunchAttributeMemSyncDomainMap:
    case cudaLaunchAttributeNvlinkUtilCentricScheduling: return cudaSuccess; /* no effect on one device */
    case cudaLaunchAttributeDeviceUpdatableKernelNode:
        return refuse("kernel nodes that device code updates are not available");
    default:
        return refuse("launch of kernel %s: launch attribute %d is not known", l->kernel->name, (int)a->id);
    }
}

/* A checked launch with its parameter bytes. Only the declared parameters are copied: the padding
 * between them stays zero. Padding inside a struct parameter cannot be told apart from its data. */
cudaError_t make_launch(const void *function, dim3 grid, dim3 block, void **arguments, size_t dynamic,
                        cudaStream_t stream, const cudaLaunchAttribute *attributes, unsigned count,
                        bool cooperative, Launch **made) {
    Kernel *k = kernel_of(function);
    if (!k) return S.last_error;
    Stream *s = stream_of(stream);
    if (!s) return S.last_error;
    Launch *l = *made = must_alloc(1, sizeof *l);
    *l = (Launch){.kernel = k,
                  .grid = {grid.x, grid.y, grid.z},
                  .block = {block.x, block.y, block.z},
                  .dynamic_shared = dynamic,
                  .cooperative = cooperative,
                  .priority = s->priority,
                  .carveout = k->carveout,
                  .policy = k->policy,
                  .non_portable = k->non_portable};
    inner_event = NULL;
    cudaError_t code = set_window(l, &s->window);
    for (unsigned i = 0; i < count && !code; i++) code = apply_attribute(l, &attributes[i]);
    if (!code) code = check_launch(l);
    if (code) return code;
    if (k->parameter_count && !arguments)
        REJECT(cudaErrorInvalidValue, "no arguments, it has %d parameters", k->parameter_count);
    l->parameters = must_alloc(k->parameter_bytes, 1);
    for (int i = 0; i < k->parameter_count; i++)
        memcpy(l->parameters + k->parameters[i].offset, arguments[i], k->parameters[i].size);
    return cudaSuccess;
}

static cudaError_t launch(const void *function, dim3 grid, dim3 block, void **arguments, size_t dynamic,
                          cudaStream_t stream, const cudaLaunchAttribute *attributes, unsigned count,
                          bool cooperative) {
    Op op = {.kind = OP_KERNEL};
    cudaError_t code = make_launch(function, grid, block, arguments, dynamic, stream, attributes, count, cooperative,
                                   &op.launch);
    if (code) return code;
    cudaEvent_t event = inner_event;
    code = submit(stream, op, NULL);
    if (!code) S.launches++;
    return code || !event ? code : cudaEventRecord(event, stream);
}

EXPORT cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t dynamic,
                                    cudaStream_t stream) {
    ENTER;
    return launch(function, grid, block, arguments, dynamic, stream, NULL, 0, false);
}

EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t dynamic,
                                      cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, dynamic, stream);
}

EXPORT cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                                               size_t dynamic, cudaStream_t stream) {
    ENTER;
    return launch(function, grid, block, arguments, dynamic, stream, NULL, 0, true);
}

EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments) {
    ENTER;
    return launch(function, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes, config->stream,
                  config->attrs, config->numAttrs, false);
}
