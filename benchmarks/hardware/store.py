"""Turns what record.py brought back into the files that tests/emulator/test_hardware.py compares with.

    PYTHONPATH=src python benchmarks/hardware/store.py FOLDER OUT

FOLDER is what prepare.py read, OUT what record.py wrote. Writes tests/emulator/hardware/programs.tar.xz,
scalar.tar.xz (results of the scalar variants alone: their operands come from a generator) and results.json
(the machine, and every program that gave no bits, with the reason).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "emulator"), str(ROOT / "src")]

import hardware_pack as pack  # noqa: E402
from hardware_rules import excluded  # noqa: E402
from hardware_store import FOLDER, PROGRAMS, SCALAR  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--to", type=Path, default=FOLDER)
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    measured = pack.read(options.out / "measured.tar.xz")
    results = json.loads(measured.pop("results.json"))
    rows = {id_: row for id_, row in results["programs"].items() if excluded(row["name"]) is None}
    done = {id_ for id_, row in rows.items() if row["status"] == "done"}
    programs: pack.Files = {}
    scalar: pack.Files = {}
    for id_ in sorted(done):
        text = (options.folder / "programs" / f"{id_}.json").read_bytes()
        description = json.loads(text)
        given = {
            f"before/{id_}/{f.name}": f.read_bytes() for f in (options.folder / "before" / id_).iterdir()
        }
        bits = {name: data for name, data in measured.items() if name.startswith(f"measured/{id_}/")}
        if "variants" in description:
            kept = {"name": description["name"], "variants": description["variants"]}
            kept["inputs"] = pack.digest(given[f"before/{id_}/in"])
            scalar |= bits | {f"programs/{id_}.json": json.dumps(kept, sort_keys=True).encode()}
            continue
        ptx = f"ptx/{description['ptx']}.ptx"
        programs[ptx] = (options.folder / ptx).read_bytes()
        programs |= given | bits | {f"programs/{id_}.json": text}
    for name, files in ((PROGRAMS.name, programs), (SCALAR.name, scalar)):
        pack.write(options.to / name, files, preset=9)
        print(
            f"{name}: {len(pack.programs(files))} programs, {(options.to / name).stat().st_size / 1e6:.2f} MB"
        )
    rest = {row["name"]: row["line"] for id_, row in rows.items() if id_ not in done}
    summary = {"machine": results["machine"], "programs": len(done), "without bits": rest}
    (options.to / "results.json").write_text(json.dumps(summary, indent=1, sort_keys=True) + "\n")
    print(f"{len(rest)} programs gave no bits: see results.json")


if __name__ == "__main__":
    main()
