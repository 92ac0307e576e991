"""A process of its own that makes calls, and dies where it is told to.

It reads one job a line from stdin and answers each with a line on stdout. A job with `apart` is done by a
child of it, so that a crash there costs no new interpreter.

    {"workspace": …, "call": [tool, arguments]}                 → {"answer": …}
    {…, "apart": true}                                          → {"answer": …, "signal": 0, "steps": [names]}
    {…, "apart": true, "kill": {"step": 7, "when": "before"}}   → {"answer": null, "signal": 9, …}
    {"workspace": …, "hold": "the-spec"}                        → {"held": true}, and the lock is kept
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from foundry_mcp.core.disk import disk, open_state
from foundry_mcp.core.flags import Flags
from foundry_mcp.core.locks import locked
from foundry_mcp.core.settings import Settings
from foundry_mcp.operations import REGISTRY
from foundry_mcp.operations.declaration import Surroundings
from foundry_mcp.runtime import Request, Runtime

STEPS = ("open", "write", "fsync", "link", "rename", "unlink", "close")
Job = dict[str, Any]

runtimes: dict[str, Runtime] = {}
held = ExitStack()


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        answer = hold(job) if "hold" in job else apart(job) if job.get("apart") else here(job)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def here(job: Job) -> Job:
    return {"answer": call(job)}


def call(job: Job) -> Any:
    place = job["workspace"]
    if place not in runtimes:
        around = Surroundings(Path(place), Settings(), Flags(), REGISTRY)
        runtimes[place] = Runtime(around, log=lambda *_: None)
    tool, arguments = job["call"]
    return runtimes[place].call(Request(tool, arguments)).wire


def hold(job: Job) -> Job:
    folder = held.enter_context(open_state(Path(job["workspace"]), "locks"))
    return {"held": held.enter_context(locked(folder, f"{job['hold']}.lock"))}


def apart(job: Job) -> Job:
    answer_out, answer_in = os.pipe()
    steps_out, steps_in = os.pipe()
    child = os.fork()
    if not child:
        watch(job.get("kill"), lambda name: os.write(steps_in, f"{name} ".encode()))
        answer = call(job)
        os.write(answer_in, json.dumps(answer).encode())
        os._exit(0)
    os.close(answer_in)
    os.close(steps_in)
    with os.fdopen(answer_out, "rb") as answers, os.fdopen(steps_out, "rb") as steps:
        said, walked = answers.read(), steps.read().decode().split()
    _, status = os.waitpid(child, 0)
    return {
        "answer": json.loads(said) if said else None,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        "steps": walked,
    }


def watch(fault: Job | None, tell: Callable[[str], object]) -> None:
    """Count every system call of a write, and die beside the one that `fault` names."""
    count = iter(range(1_000_000))

    def wrapped(name: str) -> Callable[..., Any]:
        real = getattr(disk, name)

        def step(*arguments: Any, **named: Any) -> Any:
            number = next(count)
            tell(name)
            if fault and fault["step"] == number and fault["when"] == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return real(*arguments, **named)
            finally:
                if fault and fault["step"] == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        return step

    for name in STEPS:
        setattr(disk, name, wrapped(name))


if __name__ == "__main__":
    main()
