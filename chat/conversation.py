"""The conversation: its messages, system prompt, model and sampling parameters. Pure, no I/O.

A question enters it together with its answer, never alone: whatever goes wrong in between, the conversation
is as it was and the question can be sent again.
"""

from typing import Any, Literal, NamedTuple, TypedDict

from chat.sampling import Sampling


class RequestMessage(TypedDict):
    role: Literal["system", "user", "assistant"]
    content: str


class Turn(NamedTuple):
    question: str
    answer: str


class Conversation:
    def __init__(
        self, *, model: str | None = None, system: str | None = None, sampling: Sampling | None = None
    ) -> None:
        self.model = model
        self.system = system
        self.sampling = sampling or Sampling()
        self.turns: list[Turn] = []

    @property
    def messages(self) -> list[RequestMessage]:
        """The messages of a request: the system prompt, if any, then all turns."""
        return self._messages(self.turns)

    def request(self, question: str, *, instead: bool = False) -> dict[str, Any]:
        """The body of a chat completion that asks `question` next, or `instead` of the last one.

        The conversation stays as it is.
        """
        messages = self._messages(self.turns[:-1] if instead else self.turns)
        return {
            **self._head(),
            "messages": [*messages, RequestMessage(role="user", content=question)],
            **self._tail(),
        }

    def record(self) -> dict[str, Any]:
        """The whole conversation as the body of a request."""
        return {**self._head(), "messages": self.messages, **self._tail()}

    def add(self, question: str, answer: str, *, instead: bool = False) -> None:
        """Add a question and its answer, which may be incomplete."""
        self.turns[len(self.turns) - instead :] = [Turn(question, answer)]

    def emptied(self) -> "Conversation":
        """A new conversation with the same model, system prompt and parameters."""
        return Conversation(model=self.model, system=self.system, sampling=self.sampling)

    def _messages(self, turns: list[Turn]) -> list[RequestMessage]:
        messages: list[RequestMessage] = (
            [RequestMessage(role="system", content=self.system)] if self.system else []
        )
        for turn in turns:
            messages += [
                RequestMessage(role="user", content=turn.question),
                RequestMessage(role="assistant", content=turn.answer),
            ]
        return messages

    def _head(self) -> dict[str, Any]:
        return {"model": self.model} if self.model else {}

    def _tail(self) -> dict[str, Any]:
        return self.sampling.chosen
