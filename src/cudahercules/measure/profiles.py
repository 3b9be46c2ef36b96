"""Device profiles as shipped: one JSON file a GPU in ``profiles/``, written by hand or by a reading.

``attributes`` in a file has the numbers of ``cudaDeviceAttr`` as keys. What identifies one card
rather than its kind (PCI numbers, NUMA nodes) is left out on purpose: a candidate that asks gets an
error instead of an answer that would differ on the next machine.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from cudahercules.errors import MachineError
from cudahercules.measure.profile import DeviceProfile

DIRECTORY = Path(__file__).parent / "profiles"


@lru_cache(maxsize=1)
def all_profiles() -> tuple[DeviceProfile, ...]:
    """Every shipped profile, sorted by file name. Raises MachineError for a damaged file."""
    found = []
    for path in sorted(DIRECTORY.glob("*.json")):
        try:
            found.append(DeviceProfile.model_validate_json(path.read_bytes()))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise MachineError(f"{path}: field {where}: {first['msg']}: install the package again") from error
    return tuple(found)


def load_profile(architecture: str) -> DeviceProfile:
    """The profile of the GPU for which ``architecture`` (``80``, ``90a``, …) is built; verified
    profiles come first. Raises MachineError if none is shipped."""
    matching = [p for p in all_profiles() if p.architecture == architecture]
    if not matching:
        known = ", ".join(sorted({p.architecture for p in all_profiles()}))
        raise MachineError(f"no device profile for sm_{architecture}: there are profiles for {known}")
    return max(matching, key=lambda p: p.verified)


def compare(profile: DeviceProfile, actual: DeviceProfile) -> list[str]:
    """What ``profile`` says otherwise than ``actual`` (a reading from a real device), one line each;
    empty if every fact of the profile holds. Free memory is a fixed round figure and not compared."""
    differences = [
        f"{field}: profile {getattr(profile, field)!r}, device {getattr(actual, field)!r}"
        for field in ("name", "compute_capability", "total_memory")
        if getattr(profile, field) != getattr(actual, field)
    ]
    if profile.gpc_sms and actual.gpc_sms and sorted(profile.gpc_sms) != sorted(actual.gpc_sms):
        differences.append(f"gpc_sms: profile {profile.gpc_sms}, device {actual.gpc_sms}")
    for number, value in sorted(profile.attributes.items()):
        if number not in actual.attributes:
            differences.append(f"attribute {number}: profile {value}, the device does not answer")
        elif actual.attributes[number] != value:
            differences.append(f"attribute {number}: profile {value}, device {actual.attributes[number]}")
    return differences
