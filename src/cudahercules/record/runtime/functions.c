/* Registration of device code, and kernels as host code sees them. */
#include "state.h"

typedef struct {
    const void *host;
    char *name;
    Kernel *kernel; /* NULL: the artifact has no such kernel */
} Function;

static Function **functions;
static int function_count, function_room;

typedef struct {
    int module; /* -1: device code that the artifact does not have */
} Handle;

static uint64_t fnv1a(const unsigned char *bytes, size_t size) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

/* The wrapper that nvcc emits points to a fatbin: magic, version, header size, payload size. */
EXPORT void **__cudaRegisterFatBinary(void *wrapper) {
    ENTER;
    struct Wrapper { uint32_t magic, version; const unsigned char *data; const void *unused; } *w = wrapper;
    struct Header { uint32_t magic; uint16_t version, header_size; uint64_t payload; } header;
    Handle *handle = must_alloc(1, sizeof *handle);
    handle->module = -1;
    if (!w || w->magic != 0x466243b1) {
        refuse("the host code registers something that is no fatbin");
        return (void **)handle;
    }
    memcpy(&header, w->data, sizeof header);
    if (header.magic != 0xba55ed50 || header.payload > (1u << 30)) {
        refuse("the host code registers a damaged fatbin");
        return (void **)handle;
    }
    uint64_t hash = fnv1a(w->data, header.header_size + header.payload);
    for (int i = 0; i < S.module_count; i++)
        if (S.module_hashes[i] == hash) handle->module = i;
    /* A unit without kernels and variables is not in the artifact, and nothing of it can be launched. */
    return (void **)handle;
}

EXPORT void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
EXPORT void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
EXPORT char __cudaInitModule(void **handle) { (void)handle; return 1; }

EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit,
                                   uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp) {
    ENTER;
    (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    functions = must_grow(functions, function_count, &function_room, sizeof *functions);
    Function *function = functions[function_count++] = must_alloc(1, sizeof *function);
    function->host = host;
    function->name = strdup(name);
    int module = ((Handle *)handle)->module;
    for (int i = 0; i < S.kernel_count; i++)
        if (S.kernels[i].module == module && !strcmp(S.kernels[i].name, name)) function->kernel = &S.kernels[i];
}

EXPORT void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external,
                              size_t size, int constant, int global) {
    ENTER;
    (void)device, (void)external, (void)size, (void)constant, (void)global;
    int module = ((Handle *)handle)->module;
    for (int i = 0; i < S.symbol_count; i++)
        if (S.symbols[i].module == module && !strcmp(S.symbols[i].name, name)) S.symbols[i].host = host;
}

EXPORT void __cudaRegisterManagedVar(void **handle, void **host, char *address, const char *name, int external,
                                     size_t size, int constant, int global) {
    ENTER;
    (void)handle, (void)host, (void)address, (void)external, (void)size, (void)constant, (void)global;
    refuse("__managed__ variable %.200s: managed memory is not available", name);
}

static Function *function_of(const void *pointer) {
    static Function *latest;
    if (latest && (latest->host == pointer || latest == pointer)) return latest;
    for (int i = 0; i < function_count; i++)
        if (functions[i]->host == pointer || functions[i] == pointer) return latest = functions[i];
    return NULL;
}

/* The kernel behind a host stub or a handle; NULL after having failed with a message. */
Kernel *kernel_of(const void *pointer) {
    Function *function = function_of(pointer);
    if (!function) {
        fail(cudaErrorInvalidDeviceFunction, "a pointer that is no kernel was used as one");
        return NULL;
    }
    if (!function->kernel)
        refuse("kernel %.400s is not part of the artifact's device code", function->name);
    return function->kernel;
}

EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
    ENTER;
    Function *function = function_of(host);
    *kernel = (cudaKernel_t)function;
    return function ? cudaSuccess : fail(cudaErrorInvalidDeviceFunction, "a pointer that is no kernel was used as one");
}

EXPORT cudaError_t cudaGetKernel(cudaKernel_t *kernel, const void *host) { return __cudaGetKernel(kernel, host); }

EXPORT cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function, const void *host) {
    return __cudaGetKernel((cudaKernel_t *)function, host);
}

EXPORT cudaError_t cudaFuncGetName(const char **name, const void *pointer) {
    ENTER;
    Kernel *kernel = kernel_of(pointer);
    if (!kernel) return S.last_error;
    *name = kernel->name;
    return cudaSuccess;
}

EXPORT cudaError_t cudaFuncGetParamInfo(const void *pointer, size_t index, size_t *offset, size_t *size) {
    ENTER;
    Kernel *kernel = kernel_of(pointer);
    if (!kernel) return S.last_error;
    if (index >= (size_t)kernel->parameter_count)
        return fail(cudaErrorInvalidValue, "kernel %s has no parameter %zu", kernel->name, index);
    *offset = kernel->parameters[index].offset;
    if (size) *size = kernel->parameters[index].size;
    return cudaSuccess;
}

EXPORT cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *pointer) {
    ENTER;
    Kernel *kernel = kernel_of(pointer);
    if (!kernel) return S.last_error;
    int major = 0, minor = 0;
    attribute_of(cudaDevAttrComputeCapabilityMajor, &major);
    attribute_of(cudaDevAttrComputeCapabilityMinor, &minor);
    memset(a, 0, sizeof *a);
    a->sharedSizeBytes = (size_t)kernel->static_shared;
    a->constSizeBytes = (size_t)kernel->constant;
    a->localSizeBytes = (size_t)kernel->local;
    a->maxThreadsPerBlock = kernel->max_threads;
    a->numRegs = kernel->registers;
    a->ptxVersion = a->binaryVersion = major * 10 + minor;
    a->maxDynamicSharedSizeBytes = kernel->max_dynamic;
    a->preferredShmemCarveout = kernel->carveout;
    const unsigned *cluster = kernel->cluster[0] ? kernel->cluster : kernel->required;
    a->requiredClusterWidth = (int)cluster[0];
    a->requiredClusterHeight = (int)cluster[1];
    a->requiredClusterDepth = (int)cluster[2];
    a->clusterDimMustBeSet = kernel->must_set_cluster;
    a->clusterSchedulingPolicyPreference = kernel->policy;
    a->nonPortableClusterSizeAllowed = kernel->non_portable;
    char question[2048];
    snprintf(question, sizeof question, "function %s", kernel->name);
    answer(question, "registers=%d shared=%d local=%d constant=%d threads=%d", kernel->registers,
           kernel->static_shared, kernel->local, kernel->constant, kernel->max_threads);
    return cudaSuccess;
}

static cudaError_t set_required(Kernel *kernel, int axis, int value) {
    if (kernel->cluster[0])
        return fail(cudaErrorNotPermitted, "kernel %s fixes its cluster at compile time", kernel->name);
    kernel->required[axis] = (unsigned)value;
    return cudaSuccess;
}

static cudaError_t set_attribute(const void *pointer, enum cudaFuncAttribute attribute, int value) {
    Kernel *kernel = kernel_of(pointer);
    if (!kernel) return S.last_error;
    int most = 0;
    switch (attribute) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
        if (!attribute_of(cudaDevAttrMaxSharedMemoryPerBlockOptin, &most))
            return refuse("the profile of %s lacks attribute %d", S.profile.name,
                          cudaDevAttrMaxSharedMemoryPerBlockOptin);
        if (value < 0 || value + kernel->static_shared > most)
            return fail(cudaErrorInvalidValue,
                        "cudaFuncSetAttribute: kernel %s cannot have %d bytes of dynamic shared memory: with its %d "
                        "static ones at most %d fit a block", kernel->name, value, kernel->static_shared, most);
        kernel->max_dynamic = value;
        return cudaSuccess;
    case cudaFuncAttributePreferredSharedMemoryCarveout:
        if (value < -1 || value > 100)
            return fail(cudaErrorInvalidValue, "cudaFuncSetAttribute: a carve-out of %d %% for kernel %s", value,
                        kernel->name);
        kernel->carveout = value;
        return cudaSuccess;
    case cudaFuncAttributeNonPortableClusterSizeAllowed:
        kernel->non_portable = value != 0;
        return cudaSuccess;
    case cudaFuncAttributeClusterDimMustBeSet:
        kernel->must_set_cluster = value != 0;
        return cudaSuccess;
    case cudaFuncAttributeRequiredClusterWidth: return set_required(kernel, 0, value);
    case cudaFuncAttributeRequiredClusterHeight: return set_required(kernel, 1, value);
    case cudaFuncAttributeRequiredClusterDepth: return set_required(kernel, 2, value);
    case cudaFuncAttributeClusterSchedulingPolicyPreference:
        if (value < 0 || value > 2)
            return fail(cudaErrorInvalidValue, "cudaFuncSetAttribute: cluster scheduling policy %d", value);
        kernel->policy = value;
        return cudaSuccess;
    default:
        return refuse("cudaFuncSetAttribute: function attribute %d is not known", (int)attribute);
    }
}

EXPORT cudaError_t cudaFuncSetAttribute(const void *pointer, enum cudaFuncAttribute attribute, int value) {
    ENTER;
    return set_attribute(pointer, attribute, value);
}

EXPORT cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, enum cudaFuncAttribute attribute,
                                                   int value, int device) {
    ENTER;
    if (device != 0) return fail(cudaErrorInvalidDevice, "device %d does not exist", device);
    return set_attribute(kernel, attribute, value);
}

EXPORT cudaError_t cudaFuncSetCacheConfig(const void *pointer, enum cudaFuncCache config) {
    ENTER;
    (void)config; /* has had no effect since compute capability 7.0: the carve-out replaced it */
    return kernel_of(pointer) ? cudaSuccess : S.last_error;
}
