"""cuFFT through its own interface, against torch.fft. Needs a GPU."""

import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("dtype", "shape", "axes"),
    [
        ("complex64", (5, 1024), 1),
        ("complex128", (3, 4096), 1),
        ("complex64", (2, 64, 128), 2),
        ("complex64", (3, 16, 8, 64), 3),
        ("float32", (5, 1024), 1),
        ("float32", (3, 65536), 1),
    ],
)
def test_a_planned_transform_is_the_one_that_torch_computes(dtype, shape, axes):
    from cudahercules.measure import cufft

    x = torch.randn(shape, dtype=getattr(torch, dtype), device="cuda")
    last = tuple(range(-axes, 0))
    expected = torch.fft.fftn(x, dim=last) if x.is_complex() else torch.fft.rfft(x)
    y = torch.full_like(expected, float("nan"))
    before = x.clone()
    cufft.forward(x, y, shape[-axes:])()
    torch.cuda.synchronize()
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-2)
    assert torch.equal(x, before)


def test_the_plan_can_be_captured_and_sees_new_values():
    from cudahercules.measure import cufft

    x = torch.randn((4, 65536), dtype=torch.complex64, device="cuda")
    y = torch.empty_like(x)
    run = cufft.forward(x, y, (65536,))
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(y, torch.fft.fft(x), rtol=1e-5, atol=1e-2)
