// expect: contract_error — copies the inputs to the host to multiply them there
#include <vector>

#include "solve.h"

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    std::vector<float> host_a(m * k), host_b(k * n), host_c(m * n);
    cudaMemcpy(host_a.data(), a, host_a.size() * sizeof(float), cudaMemcpyDeviceToHost);
    cudaMemcpy(host_b.data(), b, host_b.size() * sizeof(float), cudaMemcpyDeviceToHost);
    for (int64_t i = 0; i < m; ++i)
        for (int64_t p = 0; p < k; ++p)
            for (int64_t j = 0; j < n; ++j) host_c[i * n + j] += host_a[i * k + p] * host_b[p * n + j];
    cudaMemcpyAsync(c, host_c.data(), host_c.size() * sizeof(float), cudaMemcpyHostToDevice, stream);
}
