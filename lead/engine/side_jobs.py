"""Answers the front's questions beside the engine's steps (`lead.engine.question`)."""

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
"""How often there is a look whether a job can go on, while the engine is idle."""
Doing = Generator[None, None, T]
"""A job that takes several steps of the engine: it yields after each, and returns the reply."""


class SideJobs:
    """A chore with one job for each type of question. Several questions may be in progress at a time."""

    def __init__(self, send: Callable[[Answer], None]) -> None:
        self._send = send
        self._jobs: dict[
            str, tuple[type[EngineQuestion[Any]], Callable[[Any], BaseModel | Doing[BaseModel]]]
        ] = {}
        self._doing: dict[int, Doing[BaseModel]] = {}  # by the question's number

    def register(self, question: type[Q], job: Callable[[Q], BaseModel | Doing[BaseModel]]) -> None:
        """Register the `job` that answers questions of this type, at once or in several steps.

        It raises RequestError or UnavailableError to refuse one.
        """
        self._jobs[question.__name__] = question, job

    def begin(self, ask: Ask) -> None:
        """Queue a question; the next `turn` works on it."""
        question, job = self._jobs[ask.question]
        self._doing[ask.number] = _steps(job, question.model_validate(ask.fields))

    def turn(self, now: float, *, idle: bool) -> float:  # noqa: ARG002 - whatever is asked goes on
        for number, doing in list(self._doing.items()):
            if answer := _go_on(number, doing):
                del self._doing[number]
                self._send(answer)
        return 0.0

    def wait(self, now: float) -> float | None:  # noqa: ARG002 - it is always due
        return _LOOK_SECONDS if self._doing else None


def _steps(
    job: Callable[[Any], BaseModel | Doing[BaseModel]], question: EngineQuestion[Any]
) -> Doing[BaseModel]:
    begun = job(question)
    return (yield from begun) if isinstance(begun, Generator) else begun


def _go_on(number: int, doing: Doing[BaseModel]) -> Answer | None:
    """The answer, once it is known."""
    try:
        next(doing)
    except StopIteration as done:
        return Answer(number=number, reply=done.value.model_dump(mode="json"))
    except RequestError as error:
        return Answer(number=number, reason=str(error))
    except UnavailableError as error:
        return Answer(number=number, reason=str(error), may_recover=True)
    return None
