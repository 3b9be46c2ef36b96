"""What Inspect finds of CUDAHercules through the entry point ``inspect_ai``."""

from cudahercules.evaluate.agent.agents import coder_and_judge
from cudahercules.evaluate.refine import refining
from cudahercules.evaluate.replay.provider import replay
from cudahercules.evaluate.scorer import family_mean, judged
from cudahercules.evaluate.tasks import agent, oneshot, refine

__all__ = ["agent", "coder_and_judge", "family_mean", "judged", "oneshot", "refine", "refining", "replay"]
