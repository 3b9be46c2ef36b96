"""The setting with tools: a workspace, the judge's instruments with budgets, and two agents that use them."""

from cudahercules.evaluate.agent.tools import toolbox

__all__ = ["toolbox"]
