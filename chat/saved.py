"""Conversations in files: each is the body of a request, as any OpenAI-compatible server takes it."""

import difflib
import json
import os
import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from chat.conversation import Conversation, Turn
from chat.errors import CommandError
from chat.sampling import Sampling

_SUFFIX = ".json"
_N_WORDS_OF_NAME = 6
_PAIR = ("user", "assistant")


class _SavedMessage(BaseModel):
    role: Literal["system", "user", "assistant"]
    content: str


class _Saved(BaseModel):
    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    messages: list[_SavedMessage]


class SavedConversations:
    """A folder of them; a name with a slash is a path anywhere."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        """Of those in the folder, sorted."""
        return sorted(path.stem for path in self._folder.glob(f"*{_SUFFIX}"))

    def path(self, name: str) -> Path:
        """Where `name` is kept."""
        path = Path(name).expanduser()
        if path.name != name:
            return path
        return self._folder / (name if path.suffix == _SUFFIX else f"{name}{_SUFFIX}")

    def find(self, name: str) -> Path:
        """Where `name` is kept; raises CommandError if a bare name is that of none."""
        path = self.path(name)
        if path.parent == self._folder and not path.exists():
            close = difflib.get_close_matches(name, self.names(), n=1)
            hint = f"Did you mean {close[0]}?" if close else "':load' alone lists the saved ones."
            raise CommandError(f"There is no conversation {name!r}. {hint}")
        return path

    def name_of(self, path: Path) -> str:
        """What `path` and `find` take for this place."""
        return path.stem if path.parent == self._folder else str(path.absolute())

    def new_path(self, conversation: Conversation) -> Path:
        """A free place named after the first question."""
        words = re.findall(r"\w+", conversation.turns[0].question.lower())[:_N_WORDS_OF_NAME]
        name = "-".join(words)[:60] or "conversation"
        path, n = self.path(name), 1
        while path.exists():
            n += 1
            path = self.path(f"{name}-{n}")
        return path


def write(path: Path, conversation: Conversation) -> None:
    """Replace the file at once or not at all; only its owner can read it. Raises CommandError."""
    text = json.dumps(conversation.record(), ensure_ascii=False, indent=2)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.touch(mode=0o600)
        # A lone surrogate, which no file can hold, is not worth the conversation.
        draft.write_text(f"{text}\n", "utf-8", errors="replace")
        draft.replace(path)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}.") from error


def read(path: Path) -> Conversation:
    """The conversation in a file. Raises CommandError with a sentence for what is no conversation."""
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
        raise CommandError(f"{path} is no conversation: {what}.") from error
    messages = list(saved.messages)
    system = messages.pop(0).content if messages and messages[0].role == "system" else None
    conversation = Conversation(model=saved.model, system=system, sampling=sampling)
    conversation.turns = [
        Turn(question.content, answer.content)
        for question, answer in zip(messages[::2], messages[1::2], strict=False)
    ]
    if [message.role for message in messages] != list(_PAIR) * len(conversation.turns):
        raise CommandError(f"{path} is no conversation: user and assistant do not take turns in it.")
    return conversation
