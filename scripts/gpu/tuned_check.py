"""The tuned tensor-core examples against PyTorch on the GPU at hand: right where, wrong where, how fast.

    python scripts/gpu/tuned_check.py [gemm] [attention] [--quick]

Each file is compiled with nvcc as it is (and in the variants below, from the most to the least ambitious),
loaded as a shared library with the real CUDA runtime, and run on small and on large sizes. Where a result is
wrong, the script prints what helps to find the fault: a map of the error by tiles, by column within eight and
by row within sixteen, and for GEMM the product of an identity, which shows where each element of B went.
Needs nvcc, torch and a Hopper GPU. The judge has the last word (`hercules grade`); this is for development.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from cudahercules.task.header import solve_header  # noqa: E402
from cudahercules.task.load import experts_module, load_family  # noqa: E402

TASKS = ROOT / "src" / "cudahercules" / "tasks"
GEMM = TASKS / "kernel" / "gemm" / "tuned_hopper.cu"
ATTENTION = TASKS / "module" / "attention_fwd" / "tuned_hopper.cu"

# Variant -> replacements in the source text. The first is what is committed.
GEMM_VARIANTS: dict[str, list[tuple[str, str]]] = {
    "clusters of two": [],
    "no clusters": [("launch<2>(a, b", "launch<1>(a, b")],
    "B's offsets exchanged": [
        ("launch<2>(a, b", "launch<1>(a, b"),
        ("TILE_K * 128, 1024), slice", "1024, TILE_K * 128), slice"),
    ],
}
ATTENTION_VARIANTS: dict[str, list[tuple[str, str]]] = {
    "softmax behind products": [],
    "one product at a time": [
        ("products_wait<1>(scores);", "products_wait<0>(scores);"),
        (
            "start_sums(t < work.tiles - 2);\n",
            "start_sums(t < work.tiles - 2);\n        products_wait<0>(sums);\n",
        ),
    ],
    "V's offsets exchanged": [
        ("tile(v + key * 128, KV_BOX_BYTES, 1024)", "tile(v + key * 128, 1024, KV_BOX_BYTES)")
    ],
}
TORCH = {"bf16": torch.bfloat16, "fp16": torch.float16}


def hopper_task(source: Path, member: str):
    return next(t for t in load_family(source.parent) if (t.member, t.target) == (member, "hopper"))


def build(source: Path, member: str, edits: list[tuple[str, str]], folder: Path) -> ctypes.CDLL:
    text = source.read_text()
    for old, new in edits:
        if old not in text:
            raise SystemExit(f"{source.name}: a variant replaces {old!r}, which is not there any more")
        text = text.replace(old, new)
    (folder / "solve.h").write_text(solve_header(hopper_task(source, member)))
    (folder / "candidate.cu").write_text(text)
    library = folder / "candidate.so"
    command = ["nvcc", "-std=c++17", "-O3", "-gencode", "arch=compute_90a,code=sm_90a", "-Xptxas", "-v"]
    command += ["-Xcompiler", "-fPIC", "-shared", "-I", str(folder), "-o", str(library)]
    done = subprocess.run([*command, str(folder / "candidate.cu")], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    for line in done.stderr.splitlines():
        spills = "spill" in line and "0 bytes spill stores, 0 bytes spill loads" not in line
        if spills or "C75" in line:
            print("   ptxas:", line.strip()[:160])
    return ctypes.CDLL(str(library))


def pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def microseconds(run, times: int = 10) -> float:
    """Median of single runs, with L2 overwritten and a pause in between (no power capping)."""
    flush = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    samples = []
    for _ in range(times + 2):
        flush.zero_()
        torch.cuda._sleep(2_000_000)
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        stop.record()
        stop.synchronize()
        samples.append(1000 * start.elapsed_time(stop))
    return sorted(samples[2:])[times // 2]


def relative(got: torch.Tensor, reference: torch.Tensor) -> float:
    error = (got.double() - reference.double()).nan_to_num(nan=1e30)
    return float(error.norm() / reference.double().norm())


def error_maps(got: torch.Tensor, reference: torch.Tensor, tile: tuple[int, int]) -> None:
    """Where a matrix is wrong: by tile, by column within eight, by row within sixteen."""
    error = (got.double() - reference.double()).abs()
    bad = (error > 0.02 * reference.double().abs().mean() + 0.02 * reference.double().abs()) | error.isnan()
    rows, columns = bad.shape
    print(
        f"   {int(bad.sum())} of {bad.numel()} elements wrong, "
        f"NaN {int(got.isnan().sum())}, 0 {int((got == 0).sum())}"
    )
    print(f"   share wrong by tile of {tile[0]} x {tile[1]} (first 8 x 8 tiles):")
    for r in range(0, min(rows, 8 * tile[0]), tile[0]):
        line = (
            bad[r : r + tile[0], c : c + tile[1]].double().mean()
            for c in range(0, min(columns, 8 * tile[1]), tile[1])
        )
        print("    ", " ".join(f"{float(v):4.2f}" for v in line))
    for name, period, axis in (("row", 16, 0), ("column", 8, 1), ("column", 64, 1)):
        share = [bad[i::period] if axis == 0 else bad[:, i::period] for i in range(period)]
        share = [float(part.double().mean()) for part in share if part.numel()]
        print(f"   by {name} mod {period}:", " ".join(f"{v:.2f}" for v in share))
    r, c = (int(v) for v in bad.nonzero()[0]) if bool(bad.any()) else (0, 0)
    print(f"   first wrong at ({r}, {c}): got {float(got[r, c])}, expected {float(reference[r, c])}")


# ---- GEMM -------------------------------------------------------------------------------------------


def call_gemm(library: ctypes.CDLL, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    sizes = (ctypes.c_int64(v) for v in (a.shape[0], b.shape[1], a.shape[1]))
    library.solve(pointer(a), pointer(b), pointer(c), *sizes, stream())


def gemm_is_right(library: ctypes.CDLL, m: int, n: int, k: int, dtype: torch.dtype) -> bool:
    torch.manual_seed(m + n + k)
    a, b = (torch.randn(s, device="cuda").to(dtype) for s in ((m, k), (k, n)))
    c = torch.full((m, n), float("nan"), device="cuda", dtype=dtype)
    call_gemm(library, a, b, c)
    torch.cuda.synchronize()
    reference = a.double() @ b.double()
    error = relative(c, reference)
    good = error < {torch.bfloat16: 4.8e-3, torch.float16: 6e-4}[dtype]
    print(f"   {m} x {n} x {k}: relative error {error:.2e} {'ok' if good else 'WRONG'}")
    if not good:
        error_maps(c, reference, (64, 64))
    return good


def where_b_went(library: ctypes.CDLL, dtype: torch.dtype) -> None:
    """C = I B: prints which element of B came out where, for the first rows and columns."""
    size = 256
    a = torch.eye(size, device="cuda", dtype=dtype)
    for name, values in (("row", torch.arange(size)[:, None].expand(size, size)),
                         ("column", torch.arange(size)[None, :].expand(size, size))):  # fmt: skip
        b = values.contiguous().to("cuda", dtype)
        c = torch.full((size, size), -1.0, device="cuda", dtype=dtype)
        call_gemm(library, a, b, c)
        torch.cuda.synchronize()
        print(f"   {name} of B found at rows 0 1 2 8 9 16 32, columns 0 1 2 8 16 63 64 65 128:")
        for r in (0, 1, 2, 8, 9, 16, 32):
            print(
                "     ",
                [int(c[r, q]) if c[r, q] == c[r, q] else "nan" for q in (0, 1, 2, 8, 16, 63, 64, 65, 128)],
            )


def check_gemm(dtype: str, variant: str, quick: bool) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        library = build(GEMM, dtype, GEMM_VARIANTS[variant], Path(folder))
        sizes = [(128, 256, 64), (128, 256, 128), (256, 512, 512), (384, 520, 200)]
        sizes += [(129, 67, 131), (2000, 1560, 1032), (4096, 4096, 4096)]
        results = [gemm_is_right(library, *s, TORCH[dtype]) for s in sizes]
        if all(results):
            gemm_speed(library, dtype, quick)
        else:
            where_b_went(library, TORCH[dtype])
        return all(results)


def gemm_speed(library: ctypes.CDLL, dtype: str, quick: bool) -> None:
    sizes = [(8192, 8192, 8192)]
    if not quick:
        sizes += [(8192, 28672, 4096), (4096, 8192, 28672), (10007, 6144, 4096), (128, 57344, 8192)]
    for m, n, k in sizes:
        a, b = (torch.randn(s, device="cuda").to(TORCH[dtype]) for s in ((m, k), (k, n)))
        c = torch.empty((m, n), device="cuda", dtype=TORCH[dtype])
        ours = microseconds(lambda: call_gemm(library, a, b, c))  # noqa: B023
        theirs = microseconds(lambda: torch.mm(a, b, out=c))  # noqa: B023
        rate = [2e-6 * m * n * k / t for t in (ours, theirs)]
        print(
            f"   {m} x {n} x {k}: {ours:.0f} us {rate[0]:.0f} TFLOP/s; "
            f"torch.mm {theirs:.0f} us {rate[1]:.0f} TFLOP/s; ratio {theirs / ours:.3f}"
        )


# ---- attention --------------------------------------------------------------------------------------

Shape = tuple[int, int, int, int, int]  # batch, query heads, key heads, queries, keys


def call_attention(library, q, k, v, o, lse, scale: float) -> None:
    batch, heads, q_len, _ = q.shape
    sizes = (ctypes.c_int64(n) for n in (batch, heads, k.shape[1], q_len, k.shape[2]))
    arrays = (pointer(t) for t in (q, k, v, o, lse))
    library.solve(*arrays, *sizes, ctypes.c_float(scale), stream())


def operands(shape: Shape, head_dim: int, dtype: torch.dtype):
    torch.manual_seed(sum(shape))
    batch, heads, kv_heads, q_len, kv_len = shape
    q = torch.randn(batch, heads, q_len, head_dim, device="cuda").to(dtype)
    k, v = (torch.randn(batch, kv_heads, kv_len, head_dim, device="cuda").to(dtype) for _ in "kv")
    o = torch.full_like(q, float("nan"))
    lse = torch.full(q.shape[:3], float("nan"), device="cuda", dtype=torch.float32)
    return q, k, v, o, lse


def plain_attention(q, k, v, scale: float, causal: bool):
    """float64 (o, lse) of small operands."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, dim=1) for x in (k, v))
    score = scale * q.double() @ k.transpose(2, 3)
    if causal:
        seen = torch.ones(score.shape[-2:], dtype=torch.bool, device="cuda").tril(k.shape[2] - q.shape[2])
        score = score.masked_fill(~seen, -math.inf)
    return torch.softmax(score, dim=-1) @ v, torch.logsumexp(score, dim=-1)


def attention_is_right(library, shape: Shape, head_dim: int, dtype: torch.dtype, causal: bool) -> bool:
    scale = head_dim**-0.5
    q, k, v, o, lse = operands(shape, head_dim, dtype)
    call_attention(library, q, k, v, o, lse, scale)
    torch.cuda.synchronize()
    o_ref, lse_ref = plain_attention(q, k, v, scale, causal)
    errors = relative(o, o_ref), relative(lse, lse_ref)
    good = errors[0] < {torch.bfloat16: 6.4e-3, torch.float16: 8e-4}[dtype] and errors[1] < 1e-5
    print(f"   {shape}: o {errors[0]:.2e}, lse {errors[1]:.2e} {'ok' if good else 'WRONG'}")
    if not good:
        print("   o of the last head:")
        error_maps(o[-1, -1], o_ref[-1, -1], (16, 16))
        print("   lse, first and last:", lse[0, 0, :4].tolist(), lse_ref[0, 0, :4].tolist(),
              lse[-1, -1, -2:].tolist(), lse_ref[-1, -1, -2:].tolist())  # fmt: skip
    return good


def check_attention(member: str, variant: str, quick: bool) -> bool:
    head_dim, dtype = int(member.split("_")[0][4:]), TORCH[member.split("_")[1]]
    causal = member.endswith("causal")
    with tempfile.TemporaryDirectory() as folder:
        library = build(ATTENTION, member, ATTENTION_VARIANTS[variant], Path(folder))
        shapes = [(1, 1, 1, 64, 128), (1, 1, 1, 128, 128), (1, 1, 1, 128, 256), (1, 2, 1, 192, 640)]
        shapes += [(2, 6, 2, 71, 75), (1, 1, 1, 1, 1), (2, 4, 2, 1000, 1511)]
        results = [attention_is_right(library, s, head_dim, dtype, causal) for s in shapes]
        if all(results):
            attention_speed(library, head_dim, dtype, causal, quick)
        return all(results)


def attention_speed(library, head_dim: int, dtype: torch.dtype, causal: bool, quick: bool) -> None:
    shapes = [(2, 2048 // head_dim, 2048 // head_dim, 8192, 8192)]
    if not quick:
        shapes += [(4, 32, 8, 4096, 4096), (1, 32, 8, 16384, 16384), (1, 32, 8, 4096, 16384)]
    for shape in shapes:
        q, k, v, o, lse = operands(shape, head_dim, dtype)
        scale = head_dim**-0.5
        ours = microseconds(lambda: call_attention(library, q, k, v, o, lse, scale))  # noqa: B023
        pairs = shape[3] * shape[4] - (shape[3] * (shape[3] - 1) // 2 if causal else 0)
        flops = 4.0 * shape[0] * shape[1] * pairs * head_dim
        line = f"   {shape}: {ours:.0f} us {1e-6 * flops / ours:.0f} TFLOP/s"
        for name, run in experts(q, k, v, o, scale, causal).items():
            try:
                theirs = microseconds(run)
                line += (
                    f"; {name} {theirs:.0f} us {1e-6 * flops / theirs:.0f} TFLOP/s, ratio {theirs / ours:.3f}"
                )
            except Exception as error:  # an expert that is missing or refuses: say so and go on
                line += f"; {name}: {str(error).splitlines()[0][:60]}"
        print(line)


def experts(q, k, v, o, scale: float, causal: bool):
    """The family's own panel, as functions to time."""
    module = experts_module(hopper_task(ATTENTION, "hdim128_bf16_full"))
    batch, heads, q_len, head_dim = q.shape
    sizes = {"batch": batch, "q_heads": heads, "kv_heads": k.shape[1], "q_len": q_len, "kv_len": k.shape[2]}
    sizes |= {"head_dim": head_dim, "causal": int(causal)}
    lse = torch.empty(q.shape[:3], device="cuda", dtype=torch.float32)

    def lazily(make):
        made = []

        def run():
            if not made:
                made.append(make({"q": q, "k": k, "v": v}, {"o": o, "lse": lse}, sizes, {"scale": scale}))
            made[0]()

        return run

    return {name: lazily(getattr(module, name)) for name in ("fa3", "cudnn", "fa2")}


# ---- one process a variant, so that a fault or a hang ends alone --------------------------------------

CHECKS = {"gemm": (check_gemm, GEMM_VARIANTS), "attention": (check_attention, ATTENTION_VARIANTS)}
MEMBERS = {
    "gemm": ("bf16", "fp16"),
    "attention": ("hdim128_bf16_causal", "hdim128_bf16_full", "hdim64_bf16_causal", "hdim128_fp16_full"),
}
LIMIT_S = 120


def first_right_variant(kind: str, member: str, quick: bool) -> str | None:
    """Try the variants in order until one is right; its name, or None."""
    for variant in CHECKS[kind][1]:
        print(f"{kind}, {member}, {variant}", flush=True)
        command = [sys.executable, __file__, kind, "--member", member, "--variant", variant]
        try:
            done = subprocess.run([*command, *(["--quick"] if quick else [])], timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            print(f"   HANGS: not done after {LIMIT_S} s", flush=True)
            continue
        if done.returncode == 0:
            return variant
        print(f"   ends with {done.returncode}", flush=True)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", help="gemm, attention; both by default")
    parser.add_argument("--quick", action="store_true", help="one large size each, fewer members")
    parser.add_argument("--member", help="this member only")
    parser.add_argument("--variant", help="this variant only, in this process")
    arguments = parser.parse_args()
    kinds = arguments.what or list(CHECKS)
    if unknown := set(kinds) - set(CHECKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if arguments.variant is not None:
        check, _ = CHECKS[kinds[0]]
        return 0 if check(arguments.member, arguments.variant, arguments.quick) else 1

    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    summary = {}
    for kind in kinds:
        members = MEMBERS[kind][: 2 if kind == "attention" else 1] if arguments.quick else MEMBERS[kind]
        for member in [arguments.member] if arguments.member else members:
            summary[f"{kind} {member}"] = first_right_variant(kind, member, arguments.quick)
    print("summary: the first variant that is right")
    for name, variant in summary.items():
        print(f"   {name}: {variant or 'NONE'}")
    return 0 if all(summary.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
