/* A stand-in for libcublasLt: three algorithms, of which the second is refused and the third is the
   fastest; what is asked for goes into the file that FAKE_CUBLASLT_LOG names. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct { uint64_t data[8]; } algo;
typedef struct { algo a; size_t workspace; int state; float waves; int reserved[4]; } heuristic;
typedef struct { int kind; uint64_t rows, columns; int64_t leading; } layout;
typedef struct { int compute, scale; } description;

static void say(const char *text) {
    const char *path = getenv("FAKE_CUBLASLT_LOG");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f) return;
    fprintf(f, "%s\n", text);
    fclose(f);
}

size_t cublasLtGetVersion(void) { return 130100; }
int cublasLtCreate(void **h) { *h = malloc(1); say("create"); return 0; }
int cublasLtDestroy(void *h) { free(h); say("destroy"); return 0; }
int cublasLtMatmulDescCreate(description **d, int compute, int scale) {
    char text[64];
    *d = malloc(sizeof **d);
    (*d)->compute = compute; (*d)->scale = scale;
    snprintf(text, sizeof text, "description %d %d", compute, scale);
    say(text);
    return 0;
}
static int64_t number(const void *value, size_t size) {
    int64_t wide = 0;
    memcpy(&wide, value, size);
    return wide;
}
int cublasLtMatmulDescSetAttribute(description *d, int which, const void *value, size_t size) {
    char text[64];
    if (size == 8) snprintf(text, sizeof text, "operation %d place", which);
    else snprintf(text, sizeof text, "operation %d %lld", which, (long long)number(value, size));
    say(text);
    return 0;
}
int cublasLtMatrixLayoutSetAttribute(layout *l, int which, const void *value, size_t size) {
    char text[64];
    snprintf(text, sizeof text, "matrix %d %lld", which, (long long)number(value, size));
    say(text);
    return 0;
}
int cublasLtMatmulDescDestroy(description *d) { free(d); return 0; }
int cublasLtMatrixLayoutCreate(layout **l, int kind, uint64_t rows, uint64_t columns, int64_t leading) {
    char text[96];
    *l = malloc(sizeof **l);
    **l = (layout){kind, rows, columns, leading};
    snprintf(text, sizeof text, "layout %d %llu %llu %lld", kind, (unsigned long long)rows,
             (unsigned long long)columns, (long long)leading);
    say(text);
    return 0;
}
int cublasLtMatrixLayoutDestroy(layout *l) { free(l); return 0; }
int cublasLtMatmulPreferenceCreate(void **p) { *p = malloc(8); return 0; }
int cublasLtMatmulPreferenceSetAttribute(void *p, int which, const void *value, size_t size) {
    char text[64];
    snprintf(text, sizeof text, "preference %d %zu", which, size == 8 ? (size_t)*(const uint64_t *)value : 0);
    say(text);
    return 0;
}
int cublasLtMatmulPreferenceDestroy(void *p) { free(p); return 0; }
int cublasLtMatmulAlgoGetHeuristic(void *h, description *d, layout *a, layout *b, layout *c, layout *out,
                                   void *preference, int wanted, heuristic *found, int *count) {
    for (*count = 0; *count < 3 && *count < wanted; ++*count) {
        memset(&found[*count], 0, sizeof *found);
        found[*count].a.data[0] = *count + 1;
    }
    return 0;
}
int cublasLtMatmul(void *h, description *d, const void *alpha, const void *a, layout *la, const void *b,
                   layout *lb, const void *beta, const void *c, layout *lc, void *out, layout *lo, const algo *g,
                   void *workspace, size_t size, void *stream) {
    char text[96];
    snprintf(text, sizeof text, "matmul %llu %g %g %d %s", (unsigned long long)g->data[0], *(const float *)alpha,
             *(const float *)beta, c ? c == out && lc == lo : 2, stream ? "stream" : "none");
    say(text);
    if (g->data[0] == 2) return 15; /* CUBLAS_STATUS_NOT_SUPPORTED */
    struct timespec t = {0, g->data[0] == 3 ? 100000 : 20000000};
    nanosleep(&t, NULL);
    return 0;
}
