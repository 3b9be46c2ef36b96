/* Occupancy by the toolkit's own rules (cuda_occupancy.h) from the cubin's resources. */
#include "state.h"
#include <cuda_occupancy.h>

static bool describe_device(cudaOccDeviceProp *device) {
    int v[12];
    static const int numbers[12] = {75, 76, 1, 39, 12, 82, 10, 8, 81, 16, 97, 111};
    for (int i = 0; i < 12; i++)
        if (!attribute_of(numbers[i], &v[i])) {
            refuse("occupancy: the profile of %s lacks attribute %d", S.profile.name, numbers[i]);
            return false;
        }
    *device = (cudaOccDeviceProp){.computeMajor = v[0],
                                  .computeMinor = v[1],
                                  .maxThreadsPerBlock = v[2],
                                  .maxThreadsPerMultiprocessor = v[3],
                                  .regsPerBlock = v[4],
                                  .regsPerMultiprocessor = v[5],
                                  .warpSize = v[6],
                                  .sharedMemPerBlock = (size_t)v[7],
                                  .sharedMemPerMultiprocessor = (size_t)v[8],
                                  .numSms = v[9],
                                  .sharedMemPerBlockOptin = (size_t)v[10],
                                  .reservedSharedMemPerBlock = (size_t)v[11]};
    return true;
}

static cudaOccFuncAttributes describe_kernel(const Kernel *kernel) {
    return (cudaOccFuncAttributes){.maxThreadsPerBlock = kernel->max_threads,
                                   .numRegs = kernel->registers,
                                   .sharedSizeBytes = (size_t)kernel->static_shared,
                                   .partitionedGCConfig = PARTITIONED_GC_OFF,
                                   .shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN,
                                   .maxDynamicSharedSizeBytes = (size_t)kernel->max_dynamic,
                                   .numBlockBarriers = 1};
}

/* Blocks an SM; 0 if the block cannot run at all. */
int occupancy_blocks(const Kernel *kernel, int threads, size_t dynamic) {
    cudaOccDeviceProp device;
    if (threads <= 0 || threads > kernel->max_threads || !describe_device(&device)) return 0;
    cudaOccFuncAttributes function = describe_kernel(kernel);
    cudaOccDeviceState state = {.carveoutConfig = kernel->carveout};
    cudaOccResult result;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &function, &state, threads, dynamic))
        return 0;
    return result.activeBlocksPerMultiprocessor;
}

/* Clusters on the whole device. A cluster lies within one GPC; several of its blocks may share an SM. */
int occupancy_clusters(const Kernel *kernel, int threads, size_t dynamic, int cluster) {
    int per_sm = occupancy_blocks(kernel, threads, dynamic), total = 0;
    for (int i = 0; i < S.profile.gpc_count && cluster > 0; i++)
        total += S.profile.gpc_sms[i] * per_sm / cluster;
    return total;
}

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function,
                                                                          int threads, size_t dynamic,
                                                                          unsigned flags) {
    ENTER;
    Kernel *kernel = kernel_of(function);
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    if (threads <= 0)
        return fail(cudaErrorInvalidValue, "occupancy of kernel %s: %d threads a block", kernel->name, threads);
    char question[2048];
    snprintf(question, sizeof question, "occupancy %s %d %zu %u", kernel->name, threads, dynamic, flags);
    *blocks = (int)told_or(question, occupancy_blocks(kernel, threads, dynamic));
    answer(question, "%d", *blocks);
    return cudaSuccess;
}

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads,
                                                                 size_t dynamic) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, dynamic, 0);
}

EXPORT cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *function, int blocks,
                                                             int threads) {
    ENTER;
    Kernel *kernel = kernel_of(function);
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    cudaOccDeviceProp device;
    if (!describe_device(&device)) return cudaErrorNotSupported;
    cudaOccFuncAttributes attributes = describe_kernel(kernel);
    cudaOccDeviceState state = {.carveoutConfig = kernel->carveout};
    if (threads <= 0 ||
        cudaOccAvailableDynamicSMemPerBlock(bytes, &device, &attributes, &state, blocks, threads))
        return fail(cudaErrorInvalidValue, "kernel %s: %d blocks of %d threads do not fit on an SM", kernel->name,
                    blocks, threads);
    char question[2048];
    snprintf(question, sizeof question, "dynamic_shared %s %d %d", kernel->name, blocks, threads);
    *bytes = (size_t)told_or(question, (long long)*bytes);
    answer(question, "%zu", *bytes);
    return cudaSuccess;
}

static bool cluster_of(const cudaLaunchConfig_t *config, const Kernel *kernel, unsigned size[3]) {
    memcpy(size, kernel->cluster[0] ? kernel->cluster : kernel->required, 3 * sizeof *size);
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) {
            size[0] = config->attrs[i].val.clusterDim.x;
            size[1] = config->attrs[i].val.clusterDim.y;
            size[2] = config->attrs[i].val.clusterDim.z;
        }
    return size[0] && size[1] && size[2];
}

EXPORT cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *function,
                                                  const cudaLaunchConfig_t *config) {
    ENTER;
    Kernel *kernel = kernel_of(function);
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    unsigned size[3];
    int threads = (int)(config->blockDim.x * config->blockDim.y * config->blockDim.z);
    if (!cluster_of(config, kernel, size))
        return fail(cudaErrorInvalidClusterSize, "cudaOccupancyMaxActiveClusters of kernel %s: no cluster given",
                    kernel->name);
    char question[2048];
    snprintf(question, sizeof question, "clusters %s %d %zu %u,%u,%u", kernel->name, threads,
             config->dynamicSmemBytes, size[0], size[1], size[2]);
    const int computed =
        occupancy_clusters(kernel, threads, config->dynamicSmemBytes, (int)(size[0] * size[1] * size[2]));
    *clusters = (int)told_or(question, computed);
    answer(question, "%d", *clusters);
    return cudaSuccess;
}

EXPORT cudaError_t cudaOccupancyMaxPotentialClusterSize(int *cluster, const void *function,
                                                        const cudaLaunchConfig_t *config) {
    ENTER;
    Kernel *kernel = kernel_of(function);
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    int threads = (int)(config->blockDim.x * config->blockDim.y * config->blockDim.z);
    for (*cluster = kernel->non_portable ? 16 : 8; *cluster > 1; *cluster /= 2)
        if (occupancy_clusters(kernel, threads, config->dynamicSmemBytes, *cluster) > 0) break;
    char question[2048];
    snprintf(question, sizeof question, "cluster_size %s %d %zu %d", kernel->name, threads,
             config->dynamicSmemBytes, kernel->non_portable);
    *cluster = (int)told_or(question, *cluster);
    answer(question, "%d", *cluster);
    return cudaSuccess;
}
