"""An answer as a client received it, with arrival times, and its differences from another answer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_FIELDS = ("reasoning", "text", "tool_calls", "tokens", "finish_reason")


@dataclass(slots=True)
class ReceivedChoice:
    """One of the `n` choices of an answer, without the random ids of tool calls."""

    text: str = ""
    reasoning: str = ""
    tool_calls: dict[int, list[str]] = field(default_factory=dict)
    """The name and arguments of each tool call, by index."""
    tokens: list[str] = field(default_factory=list)
    """The tokens that came with log-probabilities."""
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str | None = None

    def take(self, choice: Mapping[str, Any]) -> bool:
        """Add a choice of a chunk or of a whole body; returns whether it had text."""
        part = choice.get("delta") or choice.get("message") or {}
        new = part.get("content") or choice.get("text") or ""
        self.text += new
        thought = part.get("reasoning_content") or part.get("reasoning") or ""
        self.reasoning += thought
        for position, call in enumerate(part.get("tool_calls") or []):
            own = self.tool_calls.setdefault(call.get("index", position), ["", ""])
            called = call.get("function", {})
            own[0] += called.get("name") or ""
            own[1] += called.get("arguments") or ""
        for token, logprob in _logprobs(choice.get("logprobs") or {}):
            self.tokens.append(token)
            self.logprobs.append(logprob)
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        return bool(new or thought or part.get("tool_calls"))

    def is_prefix_of(self, whole: "ReceivedChoice") -> bool:
        """Return whether the texts of this choice are a beginning of the texts of `whole`."""
        return whole.text.startswith(self.text) and all(
            name == whole.tool_calls.get(index, ["", ""])[0]
            and whole.tool_calls[index][1].startswith(arguments)
            for index, (name, arguments) in self.tool_calls.items()
        )


@dataclass(slots=True)
class ReceivedAnswer:
    """The choices by index, and the usage. `error`: the type of the error that ended the answer.

    asked_at, arrivals: times of the request and of each event with text, in seconds of the client's clock.
    timings: the server's measurements (lead and llama-server); empty from other servers.
    """

    choices: dict[int, ReceivedChoice] = field(default_factory=dict)
    n_prompt: int | None = None
    n_generated: int | None = None
    error: str | None = None
    done: bool = False
    """True if the answer ended properly: with [DONE], or as a whole body."""
    asked_at: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    timings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The whole text: reasoning, content, and the arguments of tool calls."""
        return "".join(
            each.reasoning + each.text + "".join(arguments for _, arguments in each.tool_calls.values())
            for each in self.choices.values()
        )

    def take(self, event: Mapping[str, Any], now: float = 0.0) -> bool:
        """Add an event of a stream, or a whole body; returns whether it had text."""
        if error := event.get("error"):
            self.error = str(error.get("type"))
        has_text = False
        for choice in event.get("choices", []):
            own = self.choices.setdefault(choice.get("index", 0), ReceivedChoice())
            has_text |= own.take(choice)
        if usage := event.get("usage"):
            self.n_prompt, self.n_generated = usage.get("prompt_tokens"), usage["completion_tokens"]
        self.timings = event.get("timings") or self.timings
        if has_text:
            self.arrivals.append(now)
        return has_text

    def differences(self, expected: "ReceivedAnswer", *, exact: bool = False) -> list[str]:
        """Return the names of the fields that differ from `expected`, for a client that stayed to the end.

        exact: compare log-probabilities, too; they differ as soon as any bit of the logits differs.
        """
        found = [
            name for name in ("n_prompt", "n_generated") if getattr(self, name) != getattr(expected, name)
        ]
        if self.choices.keys() != expected.choices.keys():
            return ["choices", *found]
        for index, choice in self.choices.items():
            fields = (*_FIELDS, "logprobs") if exact else _FIELDS
            other = expected.choices[index]
            found += [name for name in fields if getattr(choice, name) != getattr(other, name)]
        return found

    def is_prefix_of(self, expected: "ReceivedAnswer") -> bool:
        """Return whether this answer is a beginning of `expected`, for a client that disconnected early."""
        return all(
            choice.is_prefix_of(expected.choices.get(index, ReceivedChoice()))
            for index, choice in self.choices.items()
        )


def _logprobs(logprobs: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield tokens and their log-probabilities, from the form of chats or of text completions."""
    for entry in logprobs.get("content") or []:
        yield entry["token"], entry["logprob"]
    yield from zip(logprobs.get("tokens") or [], logprobs.get("token_logprobs") or [], strict=False)
