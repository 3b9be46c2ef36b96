"""Makes the kit for record.py out of the programs that the tests wrote. Needs ptxas and the tests' packages.

    HERCULES_COLLECT_PROGRAMS=FOLDER python -m pytest tests/emulator
    python benchmarks/hardware/prepare.py FOLDER KIT.tar.xz

Adds the programs of tests/emulator/hardware_cases.py, assembles everything for sm_90a (without contracting
multiplications and additions, which would change results that PTX defines), and packs.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "emulator"), str(ROOT / "src")]

import hardware_cases as cases  # noqa: E402
import hardware_pack as pack  # noqa: E402
import hardware_snippets as snippets  # noqa: E402
import numpy as np  # noqa: E402
import scalar_harness as harness  # noqa: E402
from emulated import Program  # noqa: E402
from hardware_collect import keep  # noqa: E402
from scalar_kernels import assemble  # noqa: E402

from cudahercules.emulator.outcome import Completed  # noqa: E402
from cudahercules.emulator.ptx.parse import parse  # noqa: E402


def add_scalar(folder: Path, scratch: Path) -> int:
    """Programs of all scalar variants that ptxas takes for sm_90a; how many variants."""
    variants = cases.scalar_variants()
    _, accepted = assemble(variants, "90a", scratch)
    chosen = [variants[i] for i in accepted]
    compiled = harness.Compiled(chosen, scratch, "-DPTX_CANONICAL_NAN=1")
    for start in range(0, len(chosen), cases.CHUNK):
        chunk = chosen[start : start + cases.CHUNK]
        program = cases.scalar_program(chunk, scratch)
        results = [compiled.run(start + i, cases.scalar_inputs(v)) for i, v in enumerate(chunk)]
        before = program.bytes()
        after = before | {"out": np.concatenate([r.reshape(-1) for r in results]).tobytes()}
        name = f"scalar {start // cases.CHUNK:02}"
        plan = program.plan().canonical_json()
        keep(folder, name, program.ptx, plan, before, after, variants=[cases.key(v) for v in chunk])
    return len(chosen)


def add_program(folder: Path, name: str, program: Program) -> None:
    """A program with what the emulator makes of it."""
    before = program.bytes()
    outcome = program.emulated()
    assert isinstance(outcome, Completed), (name, outcome)
    keep(folder, name, program.ptx, program.plan().canonical_json(), before, program.bytes())


def places(ptx: str) -> dict[str, list[tuple[int, int]]]:
    """(offset, size) of every kernel's parameters in PTX."""
    found = {}
    for function in parse(ptx).functions.values():
        if function.is_kernel:
            position, rows = 0, []
            for parameter in function.parameters:
                position += -position % parameter.alignment
                rows.append((position, parameter.size))
                position += parameter.size
            found[function.name] = rows
    return found


def cubin(ptx: bytes, scratch: Path, name: str) -> bytes | str:
    """Machine code for sm_90a, or ptxas's complaint. Whatever target the PTX names: where ptxas takes its
    instructions for sm_90a, they mean the same there."""
    source, target = scratch / f"{name}.ptx", scratch / f"{name}.cubin"
    source.write_bytes(re.sub(rb"(?m)^\.target sm_\w+", b".target sm_90a", ptx))
    command = ["ptxas", "-arch=sm_90a", "--fmad=false", str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    return target.read_bytes() if done.returncode == 0 else done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("kit", type=Path)
    options = parser.parse_args()
    folder = options.folder
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        print(f"{add_scalar(folder, scratch)} scalar variants")
        add_program(folder, "lop3", cases.lop3_program(scratch))
        for name, program in snippets.programs(scratch):
            add_program(folder, name, program)
        for name, program in cases.tensor_cases(scratch):
            add_program(folder, name, program)
        listed = folder / "varying.txt"
        varying = {line.split()[0] for line in listed.read_text().splitlines()} if listed.exists() else set()
        files: pack.Files = {}
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and p != listed):
            if not varying & {*path.relative_to(folder).parts, path.stem}:
                files[str(path.relative_to(folder))] = path.read_bytes()
        descriptions = pack.programs(files)
        texts = {d["ptx"]: files[f"ptx/{d['ptx']}.ptx"] for d in descriptions.values()}
        with ThreadPoolExecutor(2) as pool:
            cubins = dict(zip(texts, pool.map(lambda t: cubin(texts[t], scratch, t), texts), strict=True))
    for digest, made in cubins.items():
        del files[f"ptx/{digest}.ptx"]
        if isinstance(made, bytes):
            files[f"cubin/{digest}.cubin"] = made
        else:
            print(f"ptxas refuses {digest}: {made[:300]}")
    kernels = {digest: places(text.decode()) for digest, text in texts.items()}
    for id_, description in descriptions.items():
        if not isinstance(cubins[description["ptx"]], bytes):
            print(f"left out: {description['name']}")
            del files[f"programs/{id_}.json"]
            continue
        launched = {o["kernel"] for o in description["plan"]["solve"] if o["op"] == "kernel"}
        mine = {k: v for k, v in kernels[description["ptx"]].items() if k in launched}
        files[f"programs/{id_}.json"] = json.dumps(description | {"places": mine}, sort_keys=True).encode()
    pack.write(options.kit, files)
    count = len(pack.programs(files))
    print(f"{count} programs, {len(cubins)} modules, {options.kit.stat().st_size / 1e6:.1f} MB")
    print(f"{len(varying)} left out because modes of asynchrony disagree")


if __name__ == "__main__":
    main()
