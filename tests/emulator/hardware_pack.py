"""Programs for the GPU and what came back, as tar.xz files. Standard library only: GPU machines read it.

A pack holds, for each program ``ID`` (a digest of its PTX, plan and inputs):

    programs/ID.json       {"name": test or case, "ptx": digest of the PTX, "plan": the launch plan}
    ptx/DIGEST.ptx         its PTX (or cubin/DIGEST.cubin, assembled for sm_90a)
    before/ID/ARRAY        bytes of each buffer before
    emulated/ID/ARRAY      bytes of each buffer that the emulator changed
    measured/ID/ARRAY      bytes of each buffer that the GPU changed
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import tarfile
from collections.abc import Mapping
from pathlib import Path

Files = dict[str, bytes]


def digest(*parts: bytes) -> str:
    """Sixteen hexadecimal digits that tell sequences of byte strings apart."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()[:16]


def write(path: Path, files: Mapping[str, bytes], preset: int = 6) -> None:
    """The files as a tar.xz that depends on their names and bytes alone."""
    with lzma.open(path, "wb", preset=preset) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            tar.addfile(entry, io.BytesIO(files[name]))


def read(*paths: Path) -> Files:
    """All files of some packs."""
    found: Files = {}
    for path in paths:
        with tarfile.open(path, "r:xz") as tar:
            for entry in tar:
                stream = tar.extractfile(entry)
                assert stream is not None, f"{path}: {entry.name} is no file"
                found[entry.name] = stream.read()
    return found


def programs(files: Mapping[str, bytes]) -> dict[str, dict]:
    """The descriptions of the programs by ID, in the order of their names."""
    found = {
        name.removeprefix("programs/").removesuffix(".json"): json.loads(text)
        for name, text in files.items()
        if name.startswith("programs/")
    }
    return dict(sorted(found.items(), key=lambda item: (item[1]["name"], item[0])))


def arrays(files: Mapping[str, bytes], kind: str, id_: str) -> Files:
    """``before``, ``emulated`` or ``measured`` arrays of a program by name."""
    start = f"{kind}/{id_}/"
    return {name.removeprefix(start): data for name, data in files.items() if name.startswith(start)}
