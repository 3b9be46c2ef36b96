"""Write what the GPU at hand says about itself into its shipped device profile.

``python scripts/gpu/read_profile.py [FILE]`` reads CUDA device 0 and writes FILE (default: the
shipped profile of that name, or a new one). A shipped profile keeps its choice of attributes (those
that host code may ask for), its round figure of free memory and its GPC table, which the driver
does not tell; every value is replaced by the card's own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cudahercules.measure.profile import DeviceProfile
from cudahercules.measure.profiles import DIRECTORY
from cudahercules.replay.device import read_profile


def merged(shipped: DeviceProfile, read: DeviceProfile) -> DeviceProfile:
    """``shipped`` with the values of ``read``. Raises SystemExit if the card lacks an attribute."""
    missing = sorted(shipped.attributes.keys() - read.attributes.keys())
    if missing:
        raise SystemExit(f"the card does not answer attributes {missing}: take them out of the profile")
    return read.model_copy(
        update={
            "free_memory": shipped.free_memory,
            "gpc_sms": shipped.gpc_sms,
            "attributes": {n: read.attributes[n] for n in sorted(shipped.attributes)},
        }
    )


def main(arguments: list[str]) -> int:
    read = read_profile(0)
    shipped = DIRECTORY / f"{read.slug}.json"
    if shipped.exists():
        read = merged(DeviceProfile.model_validate_json(shipped.read_bytes()), read)
    target = Path(arguments[0]) if arguments else shipped
    content = read.model_dump(mode="json")
    target.write_text(json.dumps(content, indent=2) + "\n")
    print(f"wrote {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
