"""A task as a multi-turn environment for a training loop: reset, step, returns. Run: plays one episode."""

import tempfile
from pathlib import Path

from cudahercules import grade, load_task
from cudahercules.evaluate.extraction import extract
from cudahercules.evaluate.feedback import feedback
from cudahercules.evaluate.prompts import task_prompt
from cudahercules.rewards import correctness, discounted


class Environment:
    """One episode on one task. ``reward`` maps a verdict to a number; without code it is ``nothing``."""

    def __init__(self, task_id: str, device: str = "cpu", reward=correctness, nothing: float = 0.0):
        self.task, self.device, self.reward, self.nothing = load_task(task_id), device, reward, nothing

    def reset(self) -> str:
        self.rewards: list[float] = []
        return task_prompt(self.task, self.task.target.architecture or "80")

    def step(self, answer: str) -> tuple[str, float]:
        """The model's next answer; returns what it is told and the turn's reward."""
        found = extract(answer)
        with tempfile.TemporaryDirectory() as directory:
            for name, text in found.files.items():
                (Path(directory) / name).write_text(text)
            verdict = grade(self.task, directory, self.device) if found.files else None
        self.rewards.append(self.nothing if verdict is None else self.reward(verdict))
        return feedback(self.task, verdict, found.explanation()), self.rewards[-1]

    def returns(self) -> list[float]:
        return discounted(self.rewards)


if __name__ == "__main__":
    environment = Environment("kernel/softmax/fp32")
    environment.reset()
    folder = environment.task.directory
    for file in ("mutants/no_maximum.cu", "naive.cu"):  # in place of a model's answers
        said, reward = environment.step(f"```cuda\n{(folder / file).read_text()}\n```")
        print(f"{file}: reward {reward:g}; {said.splitlines()[0][:90]}")
    print("returns:", environment.returns())
