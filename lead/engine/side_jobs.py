"""Answers the front's questions between the engine's steps (`lead.engine.question`)."""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from pydantic import BaseModel

from lead.engine.commands import Ask
from lead.engine.events import Answer
from lead.engine.question import EngineQuestion
from shared.errors import RequestError, UnavailableError

T = TypeVar("T")
Q = TypeVar("Q", bound=EngineQuestion[Any])

_LOOK_SECONDS = 0.002
"""The time between two attempts to continue a job while the engine is idle."""
SteppedJob = Generator[None, None, T]
"""A job that takes several steps of the engine: it yields after each, and returns the reply."""


class SideJobs:
    """A chore that runs the job registered for each question's type. Several jobs may be in progress."""

    def __init__(self, send: Callable[[Answer], None]) -> None:
        self._send = send
        self._jobs: dict[
            str, tuple[type[EngineQuestion[Any]], Callable[[Any], BaseModel | SteppedJob[BaseModel]]]
        ] = {}
        self._in_progress: dict[int, SteppedJob[BaseModel]] = {}  # by the question's number

    def register(self, question: type[Q], job: Callable[[Q], BaseModel | SteppedJob[BaseModel]]) -> None:
        """Register the `job` that answers questions of this type, at once or over several steps.

        A job raises RequestError or UnavailableError to refuse a question.
        """
        self._jobs[question.__name__] = question, job

    def begin(self, ask: Ask) -> None:
        """Begin to answer a question; the next `run_due` works on it."""
        question, job = self._jobs[ask.question]
        self._in_progress[ask.number] = _steps(job, question.model_validate(ask.fields))

    def run_due(self, now: float, *, idle: bool) -> float:  # noqa: ARG002 - whatever is asked goes on
        for number, doing in list(self._in_progress.items()):
            if answer := _go_on(number, doing):
                del self._in_progress[number]
                self._send(answer)
        return 0.0

    def seconds_until_due(self, now: float) -> float | None:  # noqa: ARG002 - it is always due
        return _LOOK_SECONDS if self._in_progress else None


def _steps(
    job: Callable[[Any], BaseModel | SteppedJob[BaseModel]], question: EngineQuestion[Any]
) -> SteppedJob[BaseModel]:
    begun = job(question)
    return (yield from begun) if isinstance(begun, Generator) else begun


def _go_on(number: int, doing: SteppedJob[BaseModel]) -> Answer | None:
    """Continue a job by one step; return the answer, or None if the job is not finished."""
    try:
        next(doing)
    except StopIteration as done:
        return Answer(number=number, reply=done.value.model_dump(mode="json"))
    except RequestError as error:
        return Answer(number=number, reason=str(error))
    except UnavailableError as error:
        return Answer(number=number, reason=str(error), may_recover=True)
    return None
