/* Questions about the device, answered from the profile. Every answer is kept for verification. */
#include "state.h"
#include <stdarg.h>

static char **questions, **answers_;
static int answer_count, answer_room, answer_room2;

void answer(const char *question, const char *format, ...) {
    for (int i = 0; i < answer_count; i++)
        if (!strcmp(questions[i], question)) return;
    if (answer_count >= 100000) return;
    char text[8192];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    questions = must_grow(questions, answer_count, &answer_room, sizeof *questions);
    answers_ = must_grow(answers_, answer_count, &answer_room2, sizeof *answers_);
    questions[answer_count] = strdup(question);
    answers_[answer_count++] = strdup(text);
}

long long told_or(const char *question, long long computed) {
    for (int i = 0; i < S.told_count; i++)
        if (!strcmp(S.told[i].question, question)) return S.told[i].answer;
    return computed;
}

void write_answers(FILE *out) {
    for (int i = 0; i < answer_count; i++)
        fprintf(out, "{\"answer\": \"%s\", \"to\": \"%s\"}\n", answers_[i], questions[i]);
}

bool attribute_of(int number, int *value) {
    if (number < 0 || number >= MAX_ATTRIBUTES || !S.profile.known[number]) return false;
    *value = S.profile.attribute[number];
    return true;
}

static cudaError_t only_device(int device, const char *call) {
    if (device == 0) return cudaSuccess;
    return fail(cudaErrorInvalidDevice, "%s: device %d does not exist, only device 0 does", call, device);
}

EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr number, int device) {
    ENTER;
    if (only_device(device, "cudaDeviceGetAttribute")) return cudaErrorInvalidDevice;
    if (!attribute_of(number, value))
        return refuse("device attribute %d is not in the profile of %s: host code must not depend on it",
                      (int)number, S.profile.name);
    char question[32];
    snprintf(question, sizeof question, "attribute %d", (int)number);
    answer(question, "%d", *value);
    return cudaSuccess;
}

/* Which attribute fills which field of cudaDeviceProp. Fields that identify one card (PCI numbers,
 * uuid, NUMA nodes) stay zero and are no part of the answer. */
#define FIELDS(INT, SIZE)                                                                           \
    INT(maxThreadsPerBlock, 1) INT(maxThreadsDim[0], 2) INT(maxThreadsDim[1], 3)                     \
    INT(maxThreadsDim[2], 4) INT(maxGridSize[0], 5) INT(maxGridSize[1], 6) INT(maxGridSize[2], 7)    \
    SIZE(sharedMemPerBlock, 8) SIZE(totalConstMem, 9) INT(warpSize, 10) SIZE(memPitch, 11)           \
    INT(regsPerBlock, 12) SIZE(textureAlignment, 14) INT(multiProcessorCount, 16) INT(integrated, 18) \
    INT(canMapHostMemory, 19) INT(maxTexture1D, 21) INT(maxTexture2D[0], 22) INT(maxTexture2D[1], 23) \
    INT(maxTexture3D[0], 24) INT(maxTexture3D[1], 25) INT(maxTexture3D[2], 26)                       \
    SIZE(surfaceAlignment, 30) INT(concurrentKernels, 31) INT(ECCEnabled, 32) INT(tccDriver, 35)     \
    INT(memoryBusWidth, 37) INT(l2CacheSize, 38) INT(maxThreadsPerMultiProcessor, 39)                \
    INT(asyncEngineCount, 40) INT(unifiedAddressing, 41) SIZE(texturePitchAlignment, 51)             \
    INT(major, 75) INT(minor, 76) INT(streamPrioritiesSupported, 78) INT(globalL1CacheSupported, 79) \
    INT(localL1CacheSupported, 80) SIZE(sharedMemPerMultiprocessor, 81) INT(regsPerMultiprocessor, 82) \
    INT(managedMemory, 83) INT(isMultiGpuBoard, 84) INT(hostNativeAtomicSupported, 86)               \
    INT(pageableMemoryAccess, 88) INT(concurrentManagedAccess, 89) INT(computePreemptionSupported, 90) \
    INT(canUseHostPointerForRegisteredMem, 91) INT(cooperativeLaunch, 95) SIZE(sharedMemPerBlockOptin, 97) \
    INT(hostRegisterSupported, 99) INT(pageableMemoryAccessUsesHostPageTables, 100)                  \
    INT(directManagedMemAccessFromHost, 101) INT(maxBlocksPerMultiProcessor, 106)                    \
    INT(persistingL2CacheMaxSize, 108) INT(accessPolicyMaxWindowSize, 109)                           \
    SIZE(reservedSharedMemPerBlock, 111) INT(sparseCudaArraySupported, 112)                          \
    INT(hostRegisterReadOnlySupported, 113) INT(timelineSemaphoreInteropSupported, 114)              \
    INT(memoryPoolsSupported, 115) INT(clusterLaunch, 120)                                           \
    INT(deferredMappingCudaArraySupported, 121) INT(ipcEventSupported, 125)

EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    ENTER;
    if (only_device(device, "cudaGetDeviceProperties")) return cudaErrorInvalidDevice;
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "%s", S.profile.name);
    properties->totalGlobalMem = S.profile.total_memory;
    char text[4096];
    size_t used = 0;
    int value;
#define FILL(field, number)                                                                          \
    if (!attribute_of(number, &value))                                                               \
        return refuse("cudaGetDeviceProperties: the profile of %s lacks attribute %d (" #field ")",   \
                      S.profile.name, number);                                                       \
    properties->field = value;                                                                       \
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%d=%d", used ? " " : "", number, value);
    FIELDS(FILL, FILL)
#undef FILL
    answer("properties", "%s", text);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return cudaSuccess; }
EXPORT cudaError_t cudaGetDevice(int *device) { *device = 0; return cudaSuccess; }
EXPORT cudaError_t cudaGetDeviceFlags(unsigned *flags) { *flags = 0; return cudaSuccess; }

EXPORT cudaError_t cudaSetDevice(int device) { ENTER; return only_device(device, "cudaSetDevice"); }

EXPORT cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    ENTER;
    (void)device_flags, (void)flags;
    return only_device(device, "cudaInitDevice");
}

EXPORT cudaError_t cudaChooseDevice(int *device, const struct cudaDeviceProp *wanted) {
    (void)wanted;
    *device = 0;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDriverGetVersion(int *version) { *version = CUDART_VERSION; return cudaSuccess; }
EXPORT cudaError_t cudaRuntimeGetVersion(int *version) { *version = CUDART_VERSION; return cudaSuccess; }
EXPORT CUresult cuDriverGetVersion(int *version) { *version = CUDART_VERSION; return CUDA_SUCCESS; }
EXPORT CUresult cuInit(unsigned flags) { return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }

EXPORT cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    ENTER;
    *free_bytes = S.profile.free_memory;
    *total = S.profile.total_memory;
    answer("memory", "%zu %zu", *free_bytes, *total);
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value) {
    ENTER;
    switch (limit) {
    case cudaLimitStackSize:
        if (value > (512u << 10) - 1024)
            return fail(cudaErrorInvalidValue, "cudaDeviceSetLimit: a stack of %zu bytes a thread is too large",
                        value);
        S.stack_limit = value;
        return cudaSuccess;
    case cudaLimitPersistingL2CacheSize: {
        int most;
        if (!attribute_of(cudaDevAttrMaxPersistingL2CacheSize, &most))
            return refuse("the profile of %s lacks attribute %d", S.profile.name,
                          cudaDevAttrMaxPersistingL2CacheSize);
        S.persisting_l2 = value < (size_t)most ? value : (size_t)most;
        return cudaSuccess;
    }
    case cudaLimitPrintfFifoSize:
        S.printf_fifo = value;
        return cudaSuccess;
    case cudaLimitMallocHeapSize:
        return refuse("cudaDeviceSetLimit(cudaLimitMallocHeapSize): the device heap is not available: it keeps "
                      "its contents between launches");
    case cudaLimitDevRuntimeSyncDepth:
    case cudaLimitDevRuntimePendingLaunchCount:
        return refuse("cudaDeviceSetLimit: launches from device code are not available");
    default:
        return refuse("cudaDeviceSetLimit: limit %d is not available", (int)limit);
    }
}

EXPORT cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit) {
    ENTER;
    switch (limit) {
    case cudaLimitStackSize:
        *value = S.stack_limit ? S.stack_limit : 1024;
        return cudaSuccess;
    case cudaLimitPersistingL2CacheSize:
        *value = S.persisting_l2;
        return cudaSuccess;
    case cudaLimitPrintfFifoSize:
        *value = S.printf_fifo ? S.printf_fifo : 1 << 20;
        return cudaSuccess;
    default:
        return refuse("cudaDeviceGetLimit: limit %d is not available", (int)limit);
    }
}

EXPORT cudaError_t cudaCtxResetPersistingL2Cache(void) {
    /* The judge resets persisting lines before each sample; inside a sample it cannot be recorded. */
    ENTER;
    return refuse("cudaCtxResetPersistingL2Cache cannot be recorded: the judge resets persisting lines itself");
}

EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    ENTER;
    /* 0 and -5 on every device of compute capability 8.0 and later. */
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    answer("stream priorities", "0 -5");
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *config) {
    *config = cudaFuncCachePreferNone;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config) { (void)config; return cudaSuccess; }
EXPORT cudaError_t cudaFuncSetSharedMemConfig(const void *f, enum cudaSharedMemConfig c) { (void)f, (void)c; return cudaSuccess; }
EXPORT cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig c) { (void)c; return cudaSuccess; }
EXPORT cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
EXPORT cudaError_t cudaProfilerStop(void) { return cudaSuccess; }

static const struct { const char *name; void *function; } driver_functions[] = {
    {"cuTensorMapEncodeTiled", (void *)cuTensorMapEncodeTiled},
    {"cuTensorMapEncodeIm2col", (void *)cuTensorMapEncodeIm2col},
    {"cuDriverGetVersion", (void *)cuDriverGetVersion},
    {"cuGetErrorName", (void *)cuGetErrorName},
    {"cuGetErrorString", (void *)cuGetErrorString},
    {"cuInit", (void *)cuInit},
};

static void *driver_function(const char *name) {
    for (size_t i = 0; i < sizeof driver_functions / sizeof *driver_functions; i++)
        if (!strcmp(driver_functions[i].name, name)) return driver_functions[i].function;
    return NULL;
}

EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                                    unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *result) {
    ENTER;
    (void)version, (void)flags;
    *function = driver_function(name);
    if (result) *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    if (*function) return cudaSuccess;
    return refuse("driver function %.100s is not available: of the driver API only cuTensorMapEncodeTiled and "
                  "cuTensorMapEncodeIm2col are", name);
}

EXPORT cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                           enum cudaDriverEntryPointQueryResult *result) {
    return cudaGetDriverEntryPointByVersion(name, function, CUDART_VERSION, flags, result);
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *result) {
    enum cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion(name, function, (unsigned)version, flags, &found);
    if (result)
        *result = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
