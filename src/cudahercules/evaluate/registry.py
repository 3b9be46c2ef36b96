"""What Inspect finds of CUDAHercules through the entry point ``inspect_ai``."""

from cudahercules.evaluate.replay.provider import replay
from cudahercules.evaluate.scorer import family_mean, judged
from cudahercules.evaluate.refine import refining
from cudahercules.evaluate.tasks import oneshot, refine

__all__ = ["family_mean", "judged", "oneshot", "refine", "refining", "replay"]
