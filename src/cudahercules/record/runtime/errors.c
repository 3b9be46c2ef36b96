/* Errors: what the call returns, what cudaGetLastError says, and what the judge will read.
 *
 * refuse() marks the whole recording: the call has no place in a plan, whatever the candidate does
 * with the error. fail() is what hardware would answer; it marks the recording only if the candidate
 * never looks at the error.
 */
#include "state.h"
#include <stdarg.h>

State S = {.phase = -1};

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

Guard lock_state(void) {
    pthread_mutex_lock(&lock);
    return (Guard){0};
}

void unlock_state(Guard *guard) {
    (void)guard;
    pthread_mutex_unlock(&lock);
}

void *must_alloc(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) {
        fputs("the recorder is out of memory\n", stderr);
        _Exit(70);
    }
    return memory;
}

void *must_grow(void *old, int count, int *room, size_t size) {
    if (count < *room) return old;
    *room = *room ? *room * 2 : 16;
    void *memory = realloc(old, (size_t)*room * size);
    if (!memory) {
        fputs("the recorder is out of memory\n", stderr);
        _Exit(70);
    }
    return memory;
}

cudaError_t set_error(cudaError_t code) {
    if (code != cudaSuccess) S.last_error = code;
    return code;
}

cudaError_t refuse(const char *format, ...) {
    va_list list;
    va_start(list, format);
    if (!S.contract[0]) vsnprintf(S.contract, sizeof S.contract, format, list);
    va_end(list);
    return set_error(cudaErrorNotSupported);
}

cudaError_t fail(cudaError_t code, const char *format, ...) {
    va_list list;
    char text[900];
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    snprintf(S.failed, sizeof S.failed, "%s (%s)", text, error_name(code));
    if (!S.pending[0]) memcpy(S.pending, S.failed, sizeof S.pending);
    return set_error(code);
}

EXPORT cudaError_t cudaGetLastError(void) {
    ENTER;
    cudaError_t code = S.last_error;
    S.last_error = cudaSuccess;
    S.pending[0] = 0;
    return code;
}

EXPORT cudaError_t cudaPeekAtLastError(void) {
    ENTER;
    S.pending[0] = 0;
    return S.last_error;
}

EXPORT const char *cudaGetErrorName(cudaError_t code) { return error_name(code); }

EXPORT const char *cudaGetErrorString(cudaError_t code) {
    return code == cudaSuccess ? "no error" : error_name(code);
}

EXPORT CUresult cuGetErrorName(CUresult code, const char **name) {
    *name = code == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR";
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorString(CUresult code, const char **text) {
    *text = code == CUDA_SUCCESS ? "no error" : "a driver call failed while recording";
    return CUDA_SUCCESS;
}
