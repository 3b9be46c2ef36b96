"""``replay/NAME`` as a model provider of Inspect.

Which answer comes is a function of the task, of the answer's number, and of how far the conversation is:
nothing is kept between calls, so a resumed evaluation continues with the same answers. Usage counts words,
since nothing is tokenised; nothing is paid.
"""

from __future__ import annotations

import re

import anyio
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.tool import ToolCall, ToolChoice, ToolInfo
from inspect_ai.util import store_as

from cudahercules.errors import UsageError
from cudahercules.evaluate.replay import answers
from cudahercules.evaluate.state import Seat
from cudahercules.task.load import load_task

ROUND = re.compile(r"^## Round (\d+) of \d+$", re.MULTILINE)
CRITIC = re.compile(r"^## Diagnosis$", re.MULTILINE)


@modelapi(name="replay")
def replay() -> type[ModelAPI]:
    return Replay


class Replay(ModelAPI):
    """Answers from a folder (see :mod:`cudahercules.evaluate.replay.answers`). ``delay_s`` is how long each
    answer takes, in seconds."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008 (Inspect's signature)
        delay_s: float = 0.0,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        self.directory = answers.folder(model_name)
        self.delay_s = float(delay_s)

    async def generate(
        self,
        input: list[ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        if self.delay_s:
            await anyio.sleep(self.delay_s)
        reply = self._reply(input, bool(tools))
        message = ChatMessageAssistant(
            content=reply.text,
            model=self.model_name,
            source="generate",
            tool_calls=[
                ToolCall(id=f"call_{len(input)}_{i}", function=name, arguments=arguments)
                for i, (name, arguments) in enumerate(reply.calls)
            ]
            or None,
        )
        output = ModelOutput.from_message(message, "tool_calls" if reply.calls else _stop_reason(reply.stop))
        output.model = f"replay/{self.model_name}"
        asked, said = sum(len(m.text.split()) for m in input), len(reply.text.split())
        output.usage = ModelUsage(
            input_tokens=asked, output_tokens=said, total_tokens=asked + said, total_cost=0.0
        )
        return output

    def _reply(self, input: list[ChatMessage], has_tools: bool) -> answers.Reply:
        seat = store_as(Seat)
        if not seat.task:
            raise UsageError("replay/ answers CUDAHercules tasks only: no task has taken its seat here")
        task = load_task(seat.task)
        last = next((m.text for m in reversed(input) if m.role == "user"), "")
        if has_tools:
            turns = sum(m.role == "assistant" for m in input)
            return answers.turn(self.directory, task, turns)
        if CRITIC.search(last):
            return answers.critic(self.directory, task)
        if rounds := ROUND.search(last):
            return answers.refined(self.directory, task, int(rounds[1]))
        return answers.oneshot(self.directory, task, seat.epoch)

    def max_connections(self) -> int:
        return 16


def _stop_reason(word: str):
    return {"stop": "stop", "max_tokens": "max_tokens", "content_filter": "content_filter"}[word]
