"""CUB's own host code, unchanged, records: temporary storage, occupancy, many kernels."""

from __future__ import annotations

import pytest
from recording import COMMON, Bench

from cudahercules.task.model import LibraryPolicy

CASES = {
    "reduce": """
  void* t = nullptr; size_t bytes = 0;
  ok(cub::DeviceReduce::Sum(t, bytes, a, c, (int)n, stream)); ok(cudaMallocAsync(&t, bytes, stream));
  ok(cub::DeviceReduce::Sum(t, bytes, a, c, (int)n, stream)); ok(cudaFreeAsync(t, stream));""",
    "scan": """
  void* t = nullptr; size_t bytes = 0;
  ok(cub::DeviceScan::InclusiveSum(t, bytes, a, c, (int)n, stream));
  ok(cudaMallocAsync(&t, bytes, stream));
  ok(cub::DeviceScan::InclusiveSum(t, bytes, a, c, (int)n, stream)); ok(cudaFreeAsync(t, stream));""",
    "sort": """
  void* t = nullptr; size_t bytes = 0; int m = 1 << 22;
  float *in, *out;
  ok(cudaMallocAsync(&in, m * 4, stream)); ok(cudaMallocAsync(&out, m * 4, stream));
  ok(cub::DeviceRadixSort::SortKeys(t, bytes, in, out, m, 0, 32, stream));
  ok(cudaMallocAsync(&t, bytes, stream));
  ok(cub::DeviceRadixSort::SortKeys(t, bytes, in, out, m, 0, 32, stream));""",
}


@pytest.mark.slow
def test_cub_device_algorithms():
    cub = Bench("#include <cub/cub.cuh>\n" + COMMON, CASES, policy=LibraryPolicy.CUB)
    reduce, scan, sort = (cub.plan(name) for name in CASES)
    assert 1 <= len(reduce.launches) <= 2
    assert len(scan.launches) == 2  # the first kernel sets up the tile states
    assert len(sort.launches) >= 5  # histogram, exclusive sum, and at least three passes
    assert any(a.question.startswith("attribute") for a in sort.answers)
    for name, plan in zip(CASES, (reduce, scan, sort), strict=True):
        assert cub.record(name).sha256 == plan.sha256
        assert any(b.kind == "scratch" for b in plan.buffers)
