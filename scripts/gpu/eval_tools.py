"""What the agent's `profile` and `sanitize` show on this GPU, for one right and one faulty candidate."""

from cudahercules.evaluate.agent.nvidia_tools import profiled, sanitized
from cudahercules.evaluate.holdout import guidance
from cudahercules.task.load import load_task

TASK = guidance(load_task("kernel/softmax/fp32@general"))
FILES = ("tuned.cu", "hostile/vector_load_of_odd_rows.cu")

for file in FILES:
    sources = {"solution.cu": (TASK.directory / file).read_text()}
    print(f"-- {file}\nprofile:\n{profiled(TASK, sources)}", flush=True)
    print(f"sanitize:\n{sanitized(TASK, sources)}", flush=True)
