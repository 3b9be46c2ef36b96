// expect: contract_error — copies the inputs to the host to multiply them there
#include <vector>

#include "solve.h"

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    std::vector<a_t> host_a(m * k);
    std::vector<b_t> host_b(k * n);
    std::vector<c_t> host_c(m * n);
    cudaMemcpy(host_a.data(), a, host_a.size() * sizeof(a_t), cudaMemcpyDeviceToHost);
    cudaMemcpy(host_b.data(), b, host_b.size() * sizeof(b_t), cudaMemcpyDeviceToHost);
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            float sum = 0.0f;
            for (int64_t p = 0; p < k; ++p) sum += float(host_a[i * k + p]) * float(host_b[p * n + j]);
            host_c[i * n + j] = c_t(sum);
        }
    cudaMemcpyAsync(c, host_c.data(), host_c.size() * sizeof(c_t), cudaMemcpyHostToDevice, stream);
}
