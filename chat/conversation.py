"""The conversation: messages, system prompt, model and sampling parameters. It can be saved in a file.

The file is the JSON body of an OpenAI chat completion request. A question enters the conversation together
with its answer, never alone: after a failure the conversation is unchanged, and the question can be sent
again.
"""

import base64
import difflib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

from pydantic import BaseModel, ValidationError

from chat.errors import CommandError
from chat.sampling import Sampling

_SUFFIX = ".json"
_N_WORDS_OF_NAME = 6
_PAIR = ("user", "assistant")


class RequestMessage(TypedDict):
    role: Literal["system", "user", "assistant"]
    content: str | list[dict[str, Any]]


class Turn(NamedTuple):
    question: str
    answer: str


class ChatConversation:
    """The messages of a conversation, with its model, system prompt and sampling parameters."""

    def __init__(
        self,
        *,
        model: str | None = None,
        system: str | None = None,
        sampling: Sampling | None = None,
        images: Sequence[Path] = (),
    ) -> None:
        """images: files that are sent with the first question; they are not saved."""
        self.images = [_image_part(path) for path in images]
        self.model = model
        self.system = system
        self.sampling = sampling or Sampling()
        self.turns: list[Turn] = []

    def request(self, question: str, *, instead: bool = False) -> dict[str, Any]:
        """Return the body of a chat completion request that asks `question` next.

        instead: `question` replaces the last question. The conversation is not changed.
        """
        messages = self._messages(self.turns[:-1] if instead else self.turns)
        messages.append(RequestMessage(role="user", content=question))
        if self.images:
            first = next(each for each in messages if each["role"] == "user")
            first["content"] = [*self.images, {"type": "text", "text": first["content"]}]
        return self._body(messages)

    def record(self) -> dict[str, Any]:
        return self._body(self._messages(self.turns))

    def add(self, question: str, answer: str, *, instead: bool = False) -> None:
        self.turns[len(self.turns) - instead :] = [Turn(question, answer)]

    def emptied(self) -> "ChatConversation":
        return ChatConversation(model=self.model, system=self.system, sampling=self.sampling)

    def _messages(self, turns: list[Turn]) -> list[RequestMessage]:
        """Return the system prompt, if any, then the turns."""
        messages: list[RequestMessage] = (
            [RequestMessage(role="system", content=self.system)] if self.system else []
        )
        for turn in turns:
            messages += [
                RequestMessage(role="user", content=turn.question),
                RequestMessage(role="assistant", content=turn.answer),
            ]
        return messages

    def _body(self, messages: list[RequestMessage]) -> dict[str, Any]:
        model = {"model": self.model} if self.model else {}
        return {**model, "messages": messages, **self.sampling.chosen}


def _image_part(path: Path) -> dict[str, Any]:
    """Return the part of a message for an image, as in OpenAI's API; raises CommandError."""
    try:
        data = base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    return {"type": "image_url", "image_url": {"url": f"data:;base64,{data}"}}


class _SavedMessage(BaseModel):
    role: Literal["system", "user", "assistant"]
    content: str


class _Saved(BaseModel):
    model: str | None = None
    messages: list[_SavedMessage]


class SavedConversations:
    """Conversations saved in a folder, by name. A name with a slash is a path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        return sorted(path.stem for path in self._folder.glob(f"*{_SUFFIX}"))

    def path(self, name: str) -> Path:
        """Return the path for `name`, whether or not it exists."""
        path = Path(name).expanduser()
        if path.name != name:
            return path
        return self._folder / (name if path.suffix == _SUFFIX else f"{name}{_SUFFIX}")

    def find(self, name: str) -> Path:
        """Return the path for `name`; raises CommandError if the folder has no conversation of that name."""
        path = self.path(name)
        if path.parent == self._folder and not path.exists():
            close = difflib.get_close_matches(name, self.names(), n=1)
            hint = f"Did you mean {close[0]}?" if close else "':load' alone lists the saved conversations."
            raise CommandError(f"There is no conversation {name!r}. {hint}")
        return path

    def name_of(self, path: Path) -> str:
        """Return the name of the conversation at `path`: the inverse of `path`."""
        return path.stem if path.parent == self._folder else str(path.absolute())

    def new_path(self, conversation: ChatConversation) -> Path:
        """Return a path that does not exist yet, named after the first question."""
        words = re.findall(r"\w+", conversation.turns[0].question.lower())[:_N_WORDS_OF_NAME]
        name = "-".join(words)[:60] or "conversation"
        path, n = self.path(name), 1
        while path.exists():
            n += 1
            path = self.path(f"{name}-{n}")
        return path


def write_conversation(path: Path, conversation: ChatConversation) -> None:
    """Write a conversation to a file, atomically and readable only by its owner.

    Raises CommandError on failure.
    """
    text = json.dumps(conversation.record(), ensure_ascii=False, indent=2)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.touch(mode=0o600)
        # UTF-8 cannot encode a lone surrogate; replacing it saves the rest.
        draft.write_text(f"{text}\n", "utf-8", errors="replace")
        draft.replace(path)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}.") from error


def read_conversation(path: Path) -> ChatConversation:
    """Read a conversation from a file.

    Raises CommandError if the file cannot be read or is not a conversation.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        saved = _Saved.model_validate_json(content)
        sampling = Sampling.model_validate(json.loads(content))
    except ValidationError as error:
        wrong = error.errors()[0]
        place = ".".join(map(str, wrong["loc"]))
        what = f"{place}: {wrong['msg']}" if place else wrong["msg"]
        raise CommandError(f"{path} is not a conversation: {what}.") from error
    messages = list(saved.messages)
    system = messages.pop(0).content if messages and messages[0].role == "system" else None
    conversation = ChatConversation(model=saved.model, system=system, sampling=sampling)
    conversation.turns = [
        Turn(question.content, answer.content)
        for question, answer in zip(messages[::2], messages[1::2], strict=False)
    ]
    if [message.role for message in messages] != list(_PAIR) * len(conversation.turns):
        raise CommandError(f"{path} is not a conversation: user and assistant must take turns.")
    return conversation
