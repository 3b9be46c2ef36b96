/* Device memory: the task's buffers, scratch, module symbols; and plain host memory. */
#include "state.h"

#define ARENA_FIRST 0x4A5B00000000ull
#define SYMBOL_LAST 0x4C5B00000000ull

bool is_device_address(const void *pointer) {
    Address address = (Address)pointer;
    return address >= ARENA_FIRST && address < SYMBOL_LAST;
}

Region *region_of(Address address, size_t size) {
    for (int i = 0; i < S.region_count; i++) {
        Region *r = &S.regions[i];
        if (address >= r->address && address - r->address <= r->size && size <= r->size - (address - r->address))
            return r;
    }
    return NULL;
}

Symbol *symbol_at(Address address, size_t size) {
    for (int i = 0; i < S.symbol_count; i++) {
        Symbol *s = &S.symbols[i];
        if (address >= s->address && address - s->address <= s->size && size <= s->size - (address - s->address))
            return s;
    }
    return NULL;
}

Symbol *symbol_of_host(const void *host) {
    for (int i = 0; i < S.symbol_count; i++)
        if (S.symbols[i].host == host) return &S.symbols[i];
    return NULL;
}

/* Rows of width bytes, pitch apart, must lie in one buffer or symbol, which must be writable. */
cudaError_t check_range(Address address, size_t width, size_t height, size_t pitch, bool written,
                        const char *what) {
    size_t span = 0;
    if (height > 1 && pitch < width)
        return fail(cudaErrorInvalidPitchValue, "%s: a pitch of %zu bytes is less than the row's %zu", what, pitch,
                    width);
    if (width && height &&
        (__builtin_mul_overflow(height - 1, pitch, &span) || __builtin_add_overflow(span, width, &span)))
        return fail(cudaErrorInvalidValue, "%s: %zu rows of %zu bytes are too many", what, height, width);
    Region *region = region_of(address, span);
    if (!region && !symbol_at(address, span))
        return fail(cudaErrorInvalidValue, "%s: %zu bytes at 0x%llx do not lie in one buffer or device variable",
                    what, span, (unsigned long long)address);
    if (region && !region->alive)
        return fail(cudaErrorInvalidValue, "%s: the memory at 0x%llx has been freed", what,
                    (unsigned long long)address);
    if (region && region->input && written)
        return refuse("%s writes input %s: inputs are read-only", what, region->name);
    return cudaSuccess;
}

static Region *reusable(size_t size, void *stream) {
    for (int i = 0; i < S.region_count; i++) {
        Region *r = &S.regions[i];
        if (r->scratch && !r->alive && r->size == size && (r->any_stream || r->freed_on == stream)) return r;
    }
    return NULL;
}

/* A block is handed out again only where stream order makes that safe, as the driver's pool does. */
cudaError_t allocate(void **pointer, size_t size, void *stream, const char *call) {
    if (!pointer) return fail(cudaErrorInvalidValue, "%s: no place for the pointer", call);
    *pointer = NULL;
    if (size == 0) return cudaSuccess;
    Region *region = S.capture_count ? NULL : reusable(size, stream);
    if (region) {
        region->alive = true;
        *pointer = (void *)region->address;
        return cudaSuccess;
    }
    if (size > S.profile.total_memory || S.scratch_bytes + size > MAX_SCRATCH_BYTES)
        return fail(cudaErrorMemoryAllocation, "%s: %zu bytes more would bring scratch over %llu GiB", call, size,
                    MAX_SCRATCH_BYTES >> 30);
    if (S.scratch_count >= MAX_SCRATCH_COUNT)
        return refuse("%s: more than %d allocations in one call", call, MAX_SCRATCH_COUNT);
    region = &S.regions[S.region_count++];
    size_t room = (size + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    size_t pages = (room + PAGE_BYTES - 1) / PAGE_BYTES;
    char name[32];
    snprintf(name, sizeof name, "scratch %d", S.scratch_count);
    *region = (Region){.name = strdup(name),
                       .address = S.scratch_next + pages * PAGE_BYTES - room,
                       .size = size,
                       .scratch = true,
                       .alive = true};
    S.scratch_next += (pages + 1) * PAGE_BYTES;
    S.scratch_bytes += size;
    S.scratch_count++;
    *pointer = (void *)region->address;
    return cudaSuccess;
}

static cudaError_t release(void *pointer, void *stream, bool any_stream, const char *call) {
    if (!pointer) return cudaSuccess;
    for (int i = 0; i < S.region_count; i++) {
        Region *r = &S.regions[i];
        if (r->address != (Address)pointer || !r->scratch) continue;
        if (!r->alive) return fail(cudaErrorInvalidValue, "%s: %s was freed twice", call, r->name);
        r->alive = false;
        r->any_stream = any_stream;
        r->freed_on = stream;
        return cudaSuccess;
    }
    return fail(cudaErrorInvalidValue, "%s: 0x%llx is not the start of an allocation", call,
                (unsigned long long)(Address)pointer);
}

EXPORT cudaError_t cudaMalloc(void **pointer, size_t size) {
    ENTER;
    cudaError_t code = check_not_captured("cudaMalloc");
    return code ? code : allocate(pointer, size, NULL, "cudaMalloc");
}

EXPORT cudaError_t cudaFree(void *pointer) {
    ENTER;
    if (!pointer) return cudaSuccess;
    cudaError_t code = check_not_captured("cudaFree");
    if (code) return code;
    barrier_all(); /* cudaFree waits for the device */
    return release(pointer, NULL, true, "cudaFree");
}

EXPORT cudaError_t cudaMallocAsync(void **pointer, size_t size, cudaStream_t stream) {
    ENTER;
    Stream *s = stream_of(stream);
    return s ? allocate(pointer, size, s, "cudaMallocAsync") : S.last_error;
}

EXPORT cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) {
    ENTER;
    Stream *s = stream_of(stream);
    return s ? release(pointer, s->capture ? NULL : s, false, "cudaFreeAsync") : S.last_error;
}

EXPORT cudaError_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height) {
    ENTER;
    cudaError_t code = check_not_captured("cudaMallocPitch");
    if (code) return code;
    size_t total;
    *pitch = (width + 511) / 512 * 512; /* the pitch of every device since compute capability 5.0 */
    if (__builtin_mul_overflow(*pitch, height, &total))
        return fail(cudaErrorMemoryAllocation, "cudaMallocPitch: %zu x %zu bytes", width, height);
    return allocate(pointer, total, NULL, "cudaMallocPitch");
}

EXPORT cudaError_t cudaMalloc3D(struct cudaPitchedPtr *made, struct cudaExtent extent) {
    void *pointer;
    size_t pitch, rows;
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows))
        return fail(cudaErrorMemoryAllocation, "cudaMalloc3D: the extent is too large");
    cudaError_t code = cudaMallocPitch(&pointer, &pitch, extent.width, rows);
    if (!code) *made = (struct cudaPitchedPtr){pointer, pitch, extent.width, extent.height};
    return code;
}

/* --- pools: all of them draw on the same arena ------------------------------------------------- */

typedef struct { uint64_t values[16]; } Pool;
static Pool default_pool;

EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    ENTER;
    if (device) return fail(cudaErrorInvalidDevice, "device %d does not exist", device);
    *pool = (cudaMemPool_t)&default_pool;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
    return cudaDeviceGetDefaultMemPool(pool, device);
}

EXPORT cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    (void)pool;
    return cudaSetDevice(device);
}

EXPORT cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *properties) {
    ENTER;
    if (properties->allocType != cudaMemAllocationTypePinned ||
        properties->location.type != cudaMemLocationTypeDevice || properties->handleTypes)
        return refuse("cudaMemPoolCreate: only pools of device memory without export handles are available");
    *pool = must_alloc(1, sizeof(Pool));
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) { (void)pool; return cudaSuccess; }
EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) { (void)pool, (void)keep; return cudaSuccess; }

EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    ENTER;
    if (attribute <= cudaMemPoolReuseAllowInternalDependencies && attribute >= 1)
        ((Pool *)pool)->values[attribute] = (uint64_t) * (int *)value;
    else if (attribute == cudaMemPoolAttrReleaseThreshold)
        ((Pool *)pool)->values[attribute] = *(uint64_t *)value;
    else
        return refuse("cudaMemPoolSetAttribute: attribute %d is not available", (int)attribute);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    ENTER;
    if (attribute <= cudaMemPoolReuseAllowInternalDependencies && attribute >= 1)
        *(int *)value = (int)((Pool *)pool)->values[attribute];
    else if (attribute == cudaMemPoolAttrReleaseThreshold)
        *(uint64_t *)value = ((Pool *)pool)->values[attribute];
    else
        return refuse("cudaMemPoolGetAttribute: attribute %d is not available: how much memory a pool holds is "
                      "not known while recording", (int)attribute);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t count) {
    ENTER;
    (void)pool;
    for (size_t i = 0; i < count; i++)
        if (list[i].location.type != cudaMemLocationTypeDevice || list[i].location.id != 0)
            return refuse("cudaMemPoolSetAccess: there is one device");
    return cudaSuccess;
}

EXPORT cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
    (void)pool;
    return cudaMallocAsync(pointer, size, stream);
}

/* --- host memory -------------------------------------------------------------------------------- */

EXPORT cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags) {
    ENTER;
    if (flags & cudaHostAllocMapped)
        return refuse("cudaHostAlloc with cudaHostAllocMapped: host memory cannot be mapped for the device");
    *pointer = NULL;
    if (!size) return cudaSuccess;
    if (posix_memalign(pointer, 4096, size))
        return fail(cudaErrorMemoryAllocation, "cudaHostAlloc: %zu bytes of host memory", size);
    memset(*pointer, 0, size); /* what is uploaded must not depend on old heap contents */
    return cudaSuccess;
}

EXPORT cudaError_t cudaMallocHost(void **pointer, size_t size) { return cudaHostAlloc(pointer, size, 0); }
EXPORT cudaError_t cudaFreeHost(void *pointer) { free(pointer); return cudaSuccess; }

EXPORT cudaError_t cudaHostRegister(void *pointer, size_t size, unsigned flags) {
    ENTER;
    (void)pointer, (void)size;
    if (flags & cudaHostRegisterMapped)
        return refuse("cudaHostRegister with cudaHostRegisterMapped: host memory cannot be mapped for the device");
    return cudaSuccess;
}

EXPORT cudaError_t cudaHostUnregister(void *pointer) { (void)pointer; return cudaSuccess; }

EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer) {
    ENTER;
    memset(attributes, 0, sizeof *attributes);
    if (region_of((Address)pointer, 0) || symbol_at((Address)pointer, 0)) {
        attributes->type = cudaMemoryTypeDevice;
        attributes->devicePointer = (void *)pointer;
    } else {
        attributes->type = cudaMemoryTypeUnregistered;
        attributes->device = -2;
        attributes->hostPointer = (void *)pointer;
    }
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetSymbolAddress(void **address, const void *host) {
    ENTER;
    Symbol *symbol = symbol_of_host(host);
    if (!symbol) return fail(cudaErrorInvalidSymbol, "cudaGetSymbolAddress: no such device variable");
    *address = (void *)symbol->address;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetSymbolSize(size_t *size, const void *host) {
    ENTER;
    Symbol *symbol = symbol_of_host(host);
    if (!symbol) return fail(cudaErrorInvalidSymbol, "cudaGetSymbolSize: no such device variable");
    *size = symbol->size;
    return cudaSuccess;
}
