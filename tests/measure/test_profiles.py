"""Device profiles: shipped ones are complete and consistent; differences are told one by one."""

from __future__ import annotations

import pytest

from cudahercules.errors import MachineError
from cudahercules.measure.profiles import all_profiles, compare, load_profile
from cudahercules.task.model import ARCHITECTURES

ASKED_BY_THE_RECORDER = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 39, 75, 76, 81, 82, 97, 106, 108, 109, 111, 120}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_has_a_profile_with_what_launch_checks_need(architecture):
    profile = load_profile(architecture)
    assert profile.architecture == architecture
    assert set(profile.attributes) >= ASKED_BY_THE_RECORDER
    assert profile.compute_capability == (profile.attributes[75], profile.attributes[76])
    assert profile.free_memory < profile.total_memory
    assert profile.source


@pytest.mark.parametrize("profile", all_profiles(), ids=lambda p: p.slug)
def test_profiles_are_consistent(profile):
    attributes = profile.attributes
    assert (
        attributes[97] + attributes[111] == attributes[81]
    )  # opt-in + reserved = all of an SM's shared memory
    assert not profile.gpc_sms or sum(profile.gpc_sms) == attributes[16]
    assert bool(profile.gpc_sms) == bool(attributes[120])
    assert not {33, 34, 50} & set(attributes), "PCI numbers identify a card, not its kind"


def test_unknown_architecture_names_the_known_ones():
    with pytest.raises(MachineError, match=r"no device profile for sm_70: .*90a"):
        load_profile("70")


def test_compare_names_each_difference():
    profile = load_profile("90a")
    assert compare(profile, profile) == []
    changed = {k: v for k, v in profile.attributes.items() if k != 38} | {16: 78}
    actual = profile.model_copy(update={"attributes": changed, "name": "NVIDIA H20", "free_memory": 1})
    assert compare(profile, actual) == [
        "name: profile 'NVIDIA H200', device 'NVIDIA H20'",
        f"attribute 16: profile {profile.attributes[16]}, device 78",
        f"attribute 38: profile {profile.attributes[38]}, the device does not answer",
    ]
