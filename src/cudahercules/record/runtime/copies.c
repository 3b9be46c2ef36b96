/* memcpy and memset. Host data is captured at the call; data from the device never comes back. */
#include "state.h"

static bool grow_blob(size_t more) {
    if (S.blob_size + more > MAX_UPLOAD_BYTES) {
        refuse("host code uploads more than %llu MiB", MAX_UPLOAD_BYTES >> 20);
        return false;
    }
    if (S.blob_size + more > S.blob_room) {
        S.blob_room = (S.blob_size + more) * 2;
        S.blob = realloc(S.blob, S.blob_room);
        if (!S.blob) _Exit(70);
    }
    return true;
}

static const char *direction(bool to_device, bool from_device) {
    if (from_device) return to_device ? "device to device" : "device to host";
    return to_device ? "host to device" : "host to host";
}

static cudaError_t check_kind(enum cudaMemcpyKind kind, bool to, bool from, const char *call) {
    static const char *const names[] = {"host to host", "host to device", "device to host", "device to device"};
    if (kind == cudaMemcpyDefault) return cudaSuccess;
    if ((unsigned)kind > 4) return fail(cudaErrorInvalidMemcpyDirection, "%s: kind %d", call, (int)kind);
    if (!strcmp(names[kind], direction(to, from))) return cudaSuccess;
    if (kind == cudaMemcpyDeviceToHost) return cudaSuccess; /* refused below with its own sentence */
    return fail(cudaErrorInvalidValue, "%s: the kind says %s, the pointers say %s", call, names[kind],
                direction(to, from));
}

/* The operation that a copy stands for; OP_EMPTY if nothing is left to do on the device. */
cudaError_t copy_op(Op *op, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                    size_t height, enum cudaMemcpyKind kind, const char *call) {
    bool to_device = is_device_address(to), from_device = is_device_address(from);
    *op = (Op){.kind = OP_EMPTY};
    if (!width || !height) return cudaSuccess;
    cudaError_t code = check_kind(kind, to_device, from_device, call);
    if (code) return code;
    if (from_device && !to_device)
        return refuse("%s from device to host: results of device code cannot be read on the host", call);
    if (kind == cudaMemcpyDeviceToHost)
        return fail(cudaErrorInvalidValue, "%s: the kind says device to host, the pointers say %s", call,
                    direction(to_device, from_device));
    if (!to_device) {
        for (size_t row = 0; row < height; row++)
            memmove((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
        return cudaSuccess;
    }
    if ((code = check_range((Address)to, width, height, to_pitch, true, call))) return code;
    if (from_device) {
        if ((code = check_range((Address)from, width, height, from_pitch, false, call))) return code;
        op->kind = OP_COPY;
        op->copy.to = (Address)to, op->copy.from = (Address)from;
        op->copy.width = width, op->copy.height = height;
        op->copy.to_pitch = height > 1 ? to_pitch : 0, op->copy.from_pitch = height > 1 ? from_pitch : 0;
        return cudaSuccess;
    }
    if (height > 1 && to_pitch != width)
        return refuse("%s: rows that are uploaded into pitched memory must lie back to back", call);
    size_t total;
    if (__builtin_mul_overflow(width, height, &total) || !grow_blob(total)) return cudaErrorNotSupported;
    op->kind = OP_UPLOAD;
    op->upload.to = (Address)to;
    op->upload.offset = S.blob_size;
    op->upload.size = total;
    for (size_t row = 0; row < height; row++, S.blob_size += width)
        memcpy(S.blob + S.blob_size, (const char *)from + row * from_pitch, width);
    return cudaSuccess;
}

cudaError_t memset_op(Op *op, void *to, size_t pitch, unsigned value, unsigned element, size_t width,
                      size_t height, const char *call) {
    *op = (Op){.kind = OP_EMPTY};
    if (!width || !height) return cudaSuccess;
    if (element != 1 && element != 2 && element != 4)
        return fail(cudaErrorInvalidValue, "%s: elements of %u bytes", call, element);
    if ((Address)to % element)
        return fail(cudaErrorInvalidValue, "%s: 0x%llx is not aligned to %u bytes", call,
                    (unsigned long long)(Address)to, element);
    size_t bytes;
    if (__builtin_mul_overflow(width, (size_t)element, &bytes))
        return fail(cudaErrorInvalidValue, "%s: %zu elements", call, width);
    cudaError_t code = check_range((Address)to, bytes, height, pitch, true, call);
    if (code) return code;
    op->kind = OP_MEMSET;
    op->set.address = (Address)to;
    op->set.value = element == 4 ? value : value & ((1u << 8 * element) - 1);
    op->set.element = element;
    op->set.width = width, op->set.height = height, op->set.pitch = height > 1 ? pitch : 0;
    return cudaSuccess;
}

static cudaError_t copy_async(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream, const char *call) {
    Op op;
    cudaError_t code = copy_op(&op, to, to_pitch, from, from_pitch, width, height, kind, call);
    return code || op.kind == OP_EMPTY ? code : submit(stream, op, NULL);
}

/* The forms without a stream run on the default stream, and the host waits for uploads. */
static cudaError_t copy_now(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                            size_t height, enum cudaMemcpyKind kind, const char *call) {
    Op op;
    cudaError_t code = check_not_captured(call);
    if (code) return code;
    code = copy_op(&op, to, to_pitch, from, from_pitch, width, height, kind, call);
    return code || op.kind == OP_EMPTY ? code : submit_synchronous(op, op.kind == OP_UPLOAD);
}

EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    ENTER;
    return copy_now(to, size, from, size, size, 1, kind, "cudaMemcpy");
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                                   cudaStream_t stream) {
    ENTER;
    return copy_async(to, size, from, size, size, 1, kind, stream, "cudaMemcpyAsync");
}

EXPORT cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                size_t height, enum cudaMemcpyKind kind) {
    ENTER;
    return copy_now(to, to_pitch, from, from_pitch, width, height, kind, "cudaMemcpy2D");
}

EXPORT cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                     size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    ENTER;
    return copy_async(to, to_pitch, from, from_pitch, width, height, kind, stream, "cudaMemcpy2DAsync");
}

static void *inside_symbol(const void *host, size_t size, size_t offset, const char *call, cudaError_t *code) {
    Symbol *symbol = symbol_of_host(host);
    *code = cudaSuccess;
    if (!symbol)
        *code = fail(cudaErrorInvalidSymbol, "%s: no such device variable", call);
    else if (offset > symbol->size || size > symbol->size - offset)
        *code = fail(cudaErrorInvalidValue, "%s: %zu bytes at offset %zu do not fit into %s (%zu bytes)", call, size,
                     offset, symbol->name, symbol->size);
    return *code ? NULL : (void *)(symbol->address + offset);
}

EXPORT cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t size, size_t offset,
                                           enum cudaMemcpyKind kind, cudaStream_t stream) {
    ENTER;
    cudaError_t code;
    void *to = inside_symbol(symbol, size, offset, "cudaMemcpyToSymbolAsync", &code);
    return to ? copy_async(to, size, from, size, size, 1, kind, stream, "cudaMemcpyToSymbolAsync") : code;
}

EXPORT cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset,
                                      enum cudaMemcpyKind kind) {
    ENTER;
    cudaError_t code;
    void *to = inside_symbol(symbol, size, offset, "cudaMemcpyToSymbol", &code);
    return to ? copy_now(to, size, from, size, size, 1, kind, "cudaMemcpyToSymbol") : code;
}

EXPORT cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t size, size_t offset,
                                             enum cudaMemcpyKind kind, cudaStream_t stream) {
    ENTER;
    cudaError_t code;
    void *from = inside_symbol(symbol, size, offset, "cudaMemcpyFromSymbolAsync", &code);
    return from ? copy_async(to, size, from, size, size, 1, kind, stream, "cudaMemcpyFromSymbolAsync") : code;
}

EXPORT cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t size, size_t offset,
                                        enum cudaMemcpyKind kind) {
    ENTER;
    cudaError_t code;
    void *from = inside_symbol(symbol, size, offset, "cudaMemcpyFromSymbol", &code);
    return from ? copy_now(to, size, from, size, size, 1, kind, "cudaMemcpyFromSymbol") : code;
}

EXPORT cudaError_t cudaMemset(void *to, int value, size_t size) {
    ENTER;
    Op op;
    cudaError_t code = check_not_captured("cudaMemset");
    if (code) return code;
    code = memset_op(&op, to, size, (unsigned)value, 1, size, 1, "cudaMemset");
    return code || op.kind == OP_EMPTY ? code : submit_synchronous(op, false);
}

EXPORT cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream) {
    ENTER;
    Op op;
    cudaError_t code = memset_op(&op, to, size, (unsigned)value, 1, size, 1, "cudaMemsetAsync");
    return code || op.kind == OP_EMPTY ? code : submit(stream, op, NULL);
}

EXPORT cudaError_t cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height) {
    ENTER;
    Op op;
    cudaError_t code = check_not_captured("cudaMemset2D");
    if (code) return code;
    code = memset_op(&op, to, pitch, (unsigned)value, 1, width, height, "cudaMemset2D");
    return code || op.kind == OP_EMPTY ? code : submit_synchronous(op, false);
}

EXPORT cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                                     cudaStream_t stream) {
    ENTER;
    Op op;
    cudaError_t code = memset_op(&op, to, pitch, (unsigned)value, 1, width, height, "cudaMemset2DAsync");
    return code || op.kind == OP_EMPTY ? code : submit(stream, op, NULL);
}

/* Copies and memsets in three dimensions, as far as they are one slice. */
cudaError_t copy_3d_op(const struct cudaMemcpy3DParms *p, Op *op, const char *call) {
    if (p->srcArray || p->dstArray) return refuse("%s: CUDA arrays are not available", call);
    if (p->extent.depth > 1) return refuse("%s: copies of more than one slice are not available", call);
    char *to = (char *)p->dstPtr.ptr + p->dstPos.x + p->dstPos.y * p->dstPtr.pitch;
    char *from = (char *)p->srcPtr.ptr + p->srcPos.x + p->srcPos.y * p->srcPtr.pitch;
    if (p->dstPos.z || p->srcPos.z) return refuse("%s: positions in a third dimension are not available", call);
    return copy_op(op, to, p->dstPtr.pitch, from, p->srcPtr.pitch, p->extent.width, p->extent.height, p->kind, call);
}

EXPORT cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream) {
    ENTER;
    Op op;
    cudaError_t code = copy_3d_op(p, &op, "cudaMemcpy3DAsync");
    return code || op.kind == OP_EMPTY ? code : submit(stream, op, NULL);
}

EXPORT cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *p) {
    ENTER;
    Op op;
    cudaError_t code = check_not_captured("cudaMemcpy3D");
    if (!code) code = copy_3d_op(p, &op, "cudaMemcpy3D");
    return code || op.kind == OP_EMPTY ? code : submit_synchronous(op, op.kind == OP_UPLOAD);
}
