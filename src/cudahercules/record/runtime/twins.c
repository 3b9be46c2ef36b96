/* Per-thread default stream: nvcc --default-stream per-thread calls these twins instead. Each is its
 * plain form with stream 0 meaning the calling thread's own stream. */
#include "state.h"

extern __thread int per_thread_default;

#define TWIN(suffix, name, parameters, arguments)                                                              \
    EXPORT cudaError_t name##suffix parameters {                                                               \
        per_thread_default++;                                                                                  \
        cudaError_t code = name arguments;                                                                     \
        per_thread_default--;                                                                                  \
        return code;                                                                                           \
    }

#define K enum cudaMemcpyKind k
#define ST cudaStream_t s
TWIN(_ptsz, __cudaLaunchKernel, (cudaKernel_t f, dim3 g, dim3 b, void **a, size_t n, ST), (f, g, b, a, n, s))
TWIN(_ptsz, cudaLaunchKernel, (const void *f, dim3 g, dim3 b, void **a, size_t n, ST), (f, g, b, a, n, s))
TWIN(_ptsz, cudaLaunchCooperativeKernel, (const void *f, dim3 g, dim3 b, void **a, size_t n, ST), (f, g, b, a, n, s))
TWIN(_ptsz, cudaLaunchKernelExC, (const cudaLaunchConfig_t *c, const void *f, void **a), (c, f, a))
TWIN(_ptsz, cudaEventRecord, (cudaEvent_t e, ST), (e, s))
TWIN(_ptsz, cudaEventRecordWithFlags, (cudaEvent_t e, ST, unsigned f), (e, s, f))
TWIN(_ptsz, cudaMallocAsync, (void **p, size_t n, ST), (p, n, s))
TWIN(_ptsz, cudaMallocFromPoolAsync, (void **p, size_t n, cudaMemPool_t o, ST), (p, n, o, s))
TWIN(_ptsz, cudaFreeAsync, (void *p, ST), (p, s))
TWIN(_ptds, cudaMemcpy, (void *d, const void *f, size_t n, K), (d, f, n, k))
TWIN(_ptsz, cudaMemcpyAsync, (void *d, const void *f, size_t n, K, ST), (d, f, n, k, s))
TWIN(_ptds, cudaMemcpy2D, (void *d, size_t p, const void *f, size_t q, size_t w, size_t h, K), (d, p, f, q, w, h, k))
TWIN(_ptsz, cudaMemcpy2DAsync, (void *d, size_t p, const void *f, size_t q, size_t w, size_t h, K, ST),
     (d, p, f, q, w, h, k, s))
TWIN(_ptds, cudaMemcpyToSymbol, (const void *y, const void *f, size_t n, size_t o, K), (y, f, n, o, k))
TWIN(_ptsz, cudaMemcpyToSymbolAsync, (const void *y, const void *f, size_t n, size_t o, K, ST), (y, f, n, o, k, s))
TWIN(_ptds, cudaMemcpyFromSymbol, (void *d, const void *y, size_t n, size_t o, K), (d, y, n, o, k))
TWIN(_ptsz, cudaMemcpyFromSymbolAsync, (void *d, const void *y, size_t n, size_t o, K, ST), (d, y, n, o, k, s))
TWIN(_ptds, cudaMemset, (void *d, int v, size_t n), (d, v, n))
TWIN(_ptsz, cudaMemsetAsync, (void *d, int v, size_t n, ST), (d, v, n, s))
TWIN(_ptds, cudaMemset2D, (void *d, size_t p, int v, size_t w, size_t h), (d, p, v, w, h))
TWIN(_ptsz, cudaMemset2DAsync, (void *d, size_t p, int v, size_t w, size_t h, ST), (d, p, v, w, h, s))
TWIN(_ptds, cudaMemcpy3D, (const struct cudaMemcpy3DParms *p), (p))
TWIN(_ptsz, cudaMemcpy3DAsync, (const struct cudaMemcpy3DParms *p, ST), (p, s))
TWIN(_ptsz, cudaGraphInstantiateWithParams, (cudaGraphExec_t *e, cudaGraph_t g, cudaGraphInstantiateParams *p), (e, g, p))
TWIN(_ptsz, cudaStreamSynchronize, (ST), (s))
TWIN(_ptsz, cudaStreamQuery, (ST), (s))
TWIN(_ptsz, cudaStreamWaitEvent, (ST, cudaEvent_t e, unsigned f), (s, e, f))
TWIN(_ptsz, cudaStreamGetFlags, (ST, unsigned *f), (s, f))
TWIN(_ptsz, cudaStreamGetPriority, (ST, int *p), (s, p))
TWIN(_ptsz, cudaStreamGetId, (ST, unsigned long long *i), (s, i))
TWIN(_ptsz, cudaStreamGetDevice, (ST, int *d), (s, d))
TWIN(_ptsz, cudaStreamSetAttribute, (ST, cudaStreamAttrID a, const cudaStreamAttrValue *v), (s, a, v))
TWIN(_ptsz, cudaStreamGetAttribute, (ST, cudaStreamAttrID a, cudaStreamAttrValue *v), (s, a, v))
TWIN(_ptsz, cudaStreamCopyAttributes, (cudaStream_t d, ST), (d, s))
TWIN(_ptsz, cudaStreamBeginCapture, (ST, enum cudaStreamCaptureMode m), (s, m))
TWIN(_ptsz, cudaStreamBeginCaptureToGraph,
     (ST, cudaGraph_t g, const cudaGraphNode_t *d, const cudaGraphEdgeData *e, size_t n, enum cudaStreamCaptureMode m),
     (s, g, d, e, n, m))
TWIN(_ptsz, cudaStreamEndCapture, (ST, cudaGraph_t *g), (s, g))
TWIN(_ptsz, cudaStreamIsCapturing, (ST, enum cudaStreamCaptureStatus *t), (s, t))
TWIN(_ptsz, cudaStreamGetCaptureInfo,
     (ST, enum cudaStreamCaptureStatus *t, unsigned long long *i, cudaGraph_t *g, const cudaGraphNode_t **d,
      const cudaGraphEdgeData **e, size_t *n),
     (s, t, i, g, d, e, n))
TWIN(_ptsz, cudaGraphLaunch, (cudaGraphExec_t e, ST), (e, s))
TWIN(_ptsz, cudaGraphUpload, (cudaGraphExec_t e, ST), (e, s))
TWIN(_ptsz, cudaGetDriverEntryPoint,
     (const char *n, void **f, unsigned long long g, enum cudaDriverEntryPointQueryResult *r), (n, f, g, r))
TWIN(_ptsz, cudaGetDriverEntryPointByVersion,
     (const char *n, void **f, unsigned v, unsigned long long g, enum cudaDriverEntryPointQueryResult *r),
     (n, f, v, g, r))
