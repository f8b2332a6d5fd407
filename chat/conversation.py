"""The conversation: what was said, the system prompt, the sampling parameters. Pure, no I/O.

A question enters it together with its answer, never alone: whatever goes wrong in between, the conversation
is as it was and the question can be sent again.
"""

from typing import Any, Literal, TypedDict

from chat.sampling import Sampling


class Message(TypedDict):
    role: Literal["system", "user", "assistant"]
    content: str


class Conversation:
    def __init__(
        self, *, model: str | None = None, system: str | None = None, sampling: Sampling | None = None
    ) -> None:
        self.system = system
        self.sampling = sampling or Sampling()
        self._model = model
        self._turns: list[Message] = []

    @property
    def messages(self) -> list[Message]:
        """What a server is shown: the system prompt, if any, then all turns."""
        head: list[Message] = [{"role": "system", "content": self.system}] if self.system else []
        return [*head, *self._turns]

    def request(self, question: str) -> dict[str, Any]:
        """The body of a chat completion that asks `question` next; the conversation stays as it is."""
        return {
            **({"model": self._model} if self._model else {}),
            "messages": [*self.messages, Message(role="user", content=question)],
            **self.sampling.chosen,
        }

    def add(self, question: str, answer: str) -> None:
        """Keep a question with its answer, whole or as far as it came."""
        self._turns += [Message(role="user", content=question), Message(role="assistant", content=answer)]

    def forget(self) -> None:
        """Drop all turns; the system prompt and the parameters stay."""
        self._turns.clear()
