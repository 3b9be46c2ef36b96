// Per-thread arithmetic as nvcc emits it: libdevice double and float functions, integer and carry arithmetic,
// half precision, conversions. Each kernel maps element i of its inputs to element i of its outputs.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>

#define INDEX const int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return

extern "C" __global__ void double_functions(const double* x, const double* y, double* out, int n) {
    INDEX;
    const double a = x[i], b = y[i];
    double s, c;
    sincos(a, &s, &c);
    double* o = out + 20 * i;
    o[0] = exp(a); o[1] = log(fabs(a)); o[2] = pow(fabs(a), b); o[3] = s; o[4] = c; o[5] = erf(a);
    o[6] = tanh(a); o[7] = atan2(a, b); o[8] = cbrt(a); o[9] = lgamma(fabs(a) + 1); o[10] = sqrt(fabs(a)); o[11] = a / b;
    o[12] = fmod(a, b); o[13] = rsqrt(fabs(a)); o[14] = expm1(a); o[15] = log1p(fabs(a)); o[16] = rint(a); o[17] = asin(a / 40);
    o[18] = hypot(a, b); o[19] = erfc(fabs(a));
}

extern "C" __global__ void float_functions(const float* x, const float* y, float* out, int n) {
    INDEX;
    const float a = x[i], b = y[i];
    float s, c;
    sincosf(a, &s, &c);
    float* o = out + 24 * i;
    o[0] = expf(a); o[1] = logf(fabsf(a)); o[2] = powf(fabsf(a), b); o[3] = s; o[4] = c; o[5] = erff(a);
    o[6] = tanhf(a); o[7] = atan2f(a, b); o[8] = cbrtf(a); o[9] = lgammaf(fabsf(a) + 1); o[10] = sqrtf(fabsf(a)); o[11] = a / b;
    o[12] = fmodf(a, b); o[13] = rsqrtf(fabsf(a)); o[14] = expm1f(a); o[15] = log1pf(fabsf(a)); o[16] = rintf(a); o[17] = roundf(a);
    o[18] = __expf(a); o[19] = __logf(fabsf(a)); o[20] = __sinf(a); o[21] = __fdividef(a, b); o[22] = exp2f(a); o[23] = log2f(fabsf(a));
}

extern "C" __global__ void directed_rounding(const float* x, const float* y, const double* u, const double* v, float* f, double* d, int n) {
    INDEX;
    const float a = x[i], b = y[i];
    float* o = f + 20 * i;
    o[0] = __fadd_rz(a, b); o[1] = __fadd_ru(a, b); o[2] = __fadd_rd(a, b); o[3] = __fmul_rz(a, b); o[4] = __fmul_ru(a, b); o[5] = __fmul_rd(a, b);
    o[6] = __fmaf_rz(a, b, a); o[7] = __fmaf_ru(a, b, a); o[8] = __fmaf_rd(a, b, a); o[9] = __fdiv_rz(a, b); o[10] = __fdiv_ru(a, b);
    o[11] = __fdiv_rd(a, b); o[12] = __fsqrt_rz(fabsf(a)); o[13] = __fsqrt_ru(fabsf(a)); o[14] = __fsqrt_rd(fabsf(a)); o[15] = __frcp_rz(a);
    o[16] = __frcp_ru(a); o[17] = __frcp_rd(a); o[18] = __saturatef(a); o[19] = copysignf(a, b);
    const double p = u[i], q = v[i];
    double* r = d + 12 * i;
    r[0] = __dadd_rz(p, q); r[1] = __dadd_ru(p, q); r[2] = __dadd_rd(p, q); r[3] = __dmul_rz(p, q); r[4] = __dmul_ru(p, q); r[5] = __dmul_rd(p, q);
    r[6] = __fma_rz(p, q, p); r[7] = __fma_ru(p, q, p); r[8] = __fma_rd(p, q, p); r[9] = __ddiv_ru(p, q); r[10] = __dsqrt_rd(fabs(p)); r[11] = __drcp_rz(p);
}

extern "C" __global__ void wide_integers(const uint64_t* x, const uint64_t* y, uint64_t* out, int n) {
    INDEX;
    const unsigned __int128 a = (unsigned __int128)x[i] << 64 | y[i], b = (unsigned __int128)(y[i] >> 3) << 64 | x[i];
    const unsigned __int128 values[6] = {a + b, a - b, a * b, a / (b | 1), a % (b | 1), a >> (x[i] & 127)};
    for (int k = 0; k < 6; ++k) out[12 * i + 2 * k] = (uint64_t)values[k], out[12 * i + 2 * k + 1] = (uint64_t)(values[k] >> 64);
}

extern "C" __global__ void carry_chain(const uint32_t* x, const uint32_t* y, uint32_t* out, int n) {  // 128-bit sum, difference, 64x64 product
    INDEX;
    const uint32_t *a = x + 4 * i, *b = y + 4 * i;
    uint32_t* o = out + 12 * i;
    asm("add.cc.u32 %0, %4, %8; addc.cc.u32 %1, %5, %9; addc.cc.u32 %2, %6, %10; addc.u32 %3, %7, %11;"
        : "=&r"(o[0]), "=&r"(o[1]), "=&r"(o[2]), "=&r"(o[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]));
    asm("sub.cc.u32 %0, %4, %8; subc.cc.u32 %1, %5, %9; subc.cc.u32 %2, %6, %10; subc.u32 %3, %7, %11;"
        : "=&r"(o[4]), "=&r"(o[5]), "=&r"(o[6]), "=&r"(o[7]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]));
    asm("{ mul.lo.u32 %0, %4, %6; mul.hi.u32 %1, %4, %6; mad.lo.cc.u32 %1, %4, %7, %1; madc.hi.u32 %2, %4, %7, 0;"
        "  mad.lo.cc.u32 %1, %5, %6, %1; madc.hi.cc.u32 %2, %5, %6, %2; addc.u32 %3, 0, 0; mad.lo.cc.u32 %2, %5, %7, %2; madc.hi.u32 %3, %5, %7, %3; }"
        : "=&r"(o[8]), "=&r"(o[9]), "=&r"(o[10]), "=&r"(o[11]) : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]));
}

extern "C" __global__ void bit_tricks(const uint32_t* x, const uint32_t* y, uint32_t* out, int n) {
    INDEX;
    const uint32_t a = x[i], b = y[i];
    uint32_t* o = out + 20 * i;
    o[0] = __brev(a); o[1] = __clz(a); o[2] = __popc(a); o[3] = __ffs(a); o[4] = __byte_perm(a, b, 0x5143); o[5] = __funnelshift_l(a, b, b);
    o[6] = __funnelshift_rc(a, b, b & 63); o[7] = __dp4a((int)a, (int)b, 7); o[8] = __dp4a(a, b, 7u); o[9] = __usad(a, b, 3); o[10] = __umulhi(a, b);
    o[11] = __mulhi((int)a, (int)b); o[12] = __vadd4(a, b); o[13] = __vabsdiffu4(a, b); o[14] = __vmaxs2(a, b); o[15] = __vsadu4(a, b); o[16] = __vcmpgtu4(a, b);
    o[17] = __hadd((int)a, (int)b); o[18] = __vavgu4(a, b); o[19] = (a * 2654435761u) ^ (a >> 15) ^ (b << 7);
}

__device__ uint32_t xorwow(uint32_t* s) {  // the shape of curand's default generator
    uint32_t t = s[0] ^ (s[0] >> 2);
    s[0] = s[1]; s[1] = s[2]; s[2] = s[3]; s[3] = s[4];
    s[4] = (s[4] ^ (s[4] << 4)) ^ (t ^ (t << 1));
    s[5] += 362437;
    return s[4] + s[5];
}
extern "C" __global__ void random_normal(const uint32_t* seeds, float* out, int n) {
    INDEX;
    uint32_t s[6];
    for (int k = 0; k < 6; ++k) s[k] = seeds[6 * i + k];
    for (int k = 0; k < 4; ++k) {
        const float u = xorwow(s) * 2.3283064e-10f + 1.1641532e-10f, v = xorwow(s) * 1.46291807e-9f;
        out[4 * i + k] = sqrtf(-2.0f * logf(u)) * sinf(v);
    }
}

extern "C" __global__ void half_pairs(const uint32_t* x, const uint32_t* y, uint32_t* out, int n) {
    INDEX;
    __half2 a, b, r[14];
    memcpy(&a, x + i, 4); memcpy(&b, y + i, 4);
    r[0] = __hadd2(a, b); r[1] = __hsub2(a, b); r[2] = __hmul2(a, b); r[3] = __hfma2(a, b, a); r[4] = __h2div(a, b); r[5] = __hmax2(a, b); r[6] = __hmin2_nan(a, b);
    r[7] = __hneg2(a); r[8] = __habs2(a); r[9] = __hadd2_sat(a, b); r[10] = __hfma2_relu(a, b, b); r[11] = __hgt2(a, b); r[12] = h2rint(a); r[13] = __heq2(a, a);
    memcpy(out + 14 * i, r, sizeof r);
}
extern "C" __global__ void bfloat_pairs(const uint32_t* x, const uint32_t* y, uint32_t* out, int n) {
    INDEX;
    __nv_bfloat162 a, b, r[12];
    memcpy(&a, x + i, 4); memcpy(&b, y + i, 4);
    r[0] = __hadd2(a, b); r[1] = __hsub2(a, b); r[2] = __hmul2(a, b); r[3] = __hfma2(a, b, a); r[4] = __h2div(a, b); r[5] = __hmax2(a, b); r[6] = __hmin2_nan(a, b);
    r[7] = __hneg2(a); r[8] = __habs2(a); r[9] = __hfma2_relu(a, b, b); r[10] = __hgt2(a, b); r[11] = h2rint(a);
    memcpy(out + 12 * i, r, sizeof r);
}
extern "C" __global__ void half_functions(const uint16_t* x, uint16_t* out, int n) {
    INDEX;
    __half a; __nv_bfloat16 b;
    memcpy(&a, x + i, 2); memcpy(&b, x + i, 2);
    const __half r[8] = {hexp(a), hlog(__habs(a)), hsqrt(__habs(a)), hsin(a), hrcp(a), htanh(a), hexp2(a), hrsqrt(__habs(a))};
    const __nv_bfloat16 s[4] = {hexp(b), hsqrt(__habs(b)), hrcp(b), htanh(b)};
    // By halves: of a single byte of an f16 register, ptxas 13.0 makes a conversion to an integer.
    for (int k = 0; k < 8; k++) out[12 * i + k] = __half_as_ushort(r[k]);
    for (int k = 0; k < 4; k++) out[12 * i + 8 + k] = __bfloat16_as_ushort(s[k]);
}

extern "C" __global__ void float_to_int(const float* x, const double* y, int64_t* out, int n) {
    INDEX;
    const float a = x[i]; const double b = y[i];
    int64_t* o = out + 20 * i;
    o[0] = __float2int_rn(a); o[1] = __float2int_rz(a); o[2] = __float2int_ru(a); o[3] = __float2int_rd(a); o[4] = __float2uint_rn(a); o[5] = __float2uint_rz(a);
    o[6] = __float2ll_rn(a); o[7] = __float2ll_rz(a); o[8] = __float2ull_ru(a); o[9] = __float2ull_rd(a); o[10] = __double2int_rn(b); o[11] = __double2int_rd(b);
    o[12] = __double2uint_rz(b); o[13] = __double2ll_rn(b); o[14] = __double2ull_ru(b); o[15] = (signed char)a; o[16] = (unsigned short)(int)b; o[17] = __half2int_rn(__float2half(a));
    o[18] = __half2short_rz(__float2half(a)); o[19] = llrint(b);
}
extern "C" __global__ void int_to_float(const int64_t* x, float* f, double* d, uint16_t* h, int n) {
    INDEX;
    const int64_t a = x[i];
    float* o = f + 10 * i;
    o[0] = __int2float_rn((int)a); o[1] = __int2float_rz((int)a); o[2] = __int2float_ru((int)a); o[3] = __uint2float_rd((uint32_t)a); o[4] = __ll2float_rn(a); o[5] = __ll2float_rz(a);
    o[6] = __ull2float_ru((uint64_t)a); o[7] = __double2float_rd((double)a * 1e-3); o[8] = __double2float_rn((double)a / 3); o[9] = (float)(short)a;
    double* r = d + 4 * i;
    r[0] = __ll2double_rn(a); r[1] = __ll2double_ru(a); r[2] = __ull2double_rz((uint64_t)a); r[3] = __int2double_rn((int)a);
    const __half p[3] = {__int2half_rn((int)a), __ll2half_rn(a), __float2half_rz((float)a)};
    const __nv_bfloat16 q[3] = {__int2bfloat16_rn((int)a), __ll2bfloat16_rn(a), __float2bfloat16_ru((float)a)};
    for (int k = 0; k < 3; k++) h[6 * i + k] = __half_as_ushort(p[k]), h[6 * i + 3 + k] = __bfloat16_as_ushort(q[k]);
}

extern "C" __global__ void fp8_conversions(const float* x, const float* y, uint16_t* codes, uint32_t* back, int n) {
    INDEX;
    const float2 pair = make_float2(x[i], y[i]);
    const __half2 halves = __floats2half2_rn(x[i], y[i]);
    uint16_t* o = codes + 4 * i;
    o[0] = __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3); o[1] = __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E5M2);
    o[2] = __nv_cvt_halfraw2_to_fp8x2(halves, __NV_SATFINITE, __NV_E4M3); o[3] = __nv_cvt_halfraw2_to_fp8x2(halves, __NV_SATFINITE, __NV_E5M2);
    const __half2_raw p = __nv_cvt_fp8x2_to_halfraw2(o[0], __NV_E4M3), q = __nv_cvt_fp8x2_to_halfraw2(o[1], __NV_E5M2);
    back[2 * i] = p.x | (uint32_t)p.y << 16; back[2 * i + 1] = q.x | (uint32_t)q.y << 16;
}

extern "C" __global__ void minima(const float* x, const float* y, float* out, int n) {
    INDEX;
    const float a = x[i], b = y[i], c = a * b;
    float* o = out + 6 * i;
    o[0] = fmaxf(a, b); o[1] = fminf(a, b); o[2] = fmaxf(fmaxf(a, b), c); o[3] = fminf(fminf(a, b), c); o[4] = fdimf(a, b); o[5] = fmaxf(fabsf(a), fmaxf(fabsf(b), fabsf(c)));
}
