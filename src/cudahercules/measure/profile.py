"""Device profiles: the facts about a GPU that host code may ask for while no GPU is there."""

from __future__ import annotations

from pydantic import Field

from cudahercules.task.model import Model


class DeviceProfile(Model):
    """``attributes`` maps the number of a ``cudaDeviceAttr`` to its value. ``verified`` says that
    the values were read from such a GPU; ``source`` says when and how, or from which document.
    ``gpc_sms`` holds the SMs of each GPC, from which the number of co-resident clusters follows. ``told``
    holds what one GPU itself answered to questions whose answers are else computed: a question as it
    stands in a plan -> its answer."""

    name: str  # "NVIDIA H200"
    slug: str  # "nvidia-h200"
    architecture: str  # "90a"
    compute_capability: tuple[int, int]
    total_memory: int
    free_memory: int  # what cudaMemGetInfo answers: a fixed round figure, never the true one
    attributes: dict[int, int]
    gpc_sms: tuple[int, ...] = ()
    told: dict[str, str] = Field(default_factory=dict)
    verified: bool
    source: str
