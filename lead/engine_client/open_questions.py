"""Questions that the engine has not answered yet (`lead.engine.question`)."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from lead.engine.commands import Ask
from lead.engine.events import Answer
from lead.engine.question import EngineQuestion
from shared.errors import UnavailableError

_MAX_OPEN = 64
"""The maximum number of open questions, so that no client can fill the pipe."""


class OpenQuestions:
    """Numbered questions to the engine. Each stays open until it is answered, even if the caller has left."""

    def __init__(self, send: Callable[[Ask], None]) -> None:
        self._send = send
        self._numbers = itertools.count()
        self._open: dict[int, tuple[EngineQuestion[Any], asyncio.Future[Answer]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def ask(self, question: EngineQuestion[Any]) -> Answer:
        """Send a question and wait for the answer; if the engine ends, the answer is a failure.

        A question with `only_looks` that equals an open question is not sent: both callers get the same
        answer. Raises UnavailableError if too many questions are open.
        """
        answer = self._shared(question) if question.only_looks else None
        return await asyncio.shield(answer or self._begin(question))

    def close(self, answer: Answer) -> None:
        """Pass the engine's answer to the waiting caller."""
        _, waiting = self._open.pop(answer.number)
        waiting.set_result(answer)

    def close_all(self, reason: str) -> None:
        """Answer all open questions with a failure, because the engine has ended."""
        for number in list(self._open):
            self.close(Answer(number=number, reason=reason, may_recover=True))

    def _shared(self, question: EngineQuestion[Any]) -> asyncio.Future[Answer] | None:
        return next((answer for asked, answer in self._open.values() if asked == question), None)

    def _begin(self, question: EngineQuestion[Any]) -> asyncio.Future[Answer]:
        if len(self._open) >= _MAX_OPEN:
            raise UnavailableError("the engine is busy: try again in a moment")
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._open[number] = question, answer
        fields = question.model_dump(mode="json")
        self._send(Ask(number=number, question=type(question).__name__, fields=fields))
        return answer
