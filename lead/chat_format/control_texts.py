"""Distinguishes control tokens in the texts of clients from control tokens that the chat template writes.

A message that contains `<|im_end|>` would end its turn if the rendered prompt were simply tokenized.
Therefore a mark is put inside such a text before the template is rendered. In the prompt, no control token is
read across a mark. This is reliable only if the prompt without its marks equals a prompt rendered from the
unmarked messages.
"""

import functools
import itertools
import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lead.chat_format.request_parts import TemplateInput
from lead.chat_format.template import ChatTemplate
from shared.errors import RequestError
from shared.llama.special_tokens import SpecialTokens, find_unbroken

_SHORTEST = 2
"""The length of the shortest text that gets a mark. A text of one character has no inside for a mark."""


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """The text of a prompt. breaks: ascending positions; no control token may extend across one of them.

    known: the breaks are complete; otherwise some texts of clients are read as control tokens.
    """

    text: str
    breaks: Sequence[int] = ()
    known: bool = True

    def part(self, start: int, end: int) -> "RenderedPrompt":
        inside = self.breaks[bisect_right(self.breaks, start) : bisect_left(self.breaks, end)]
        return RenderedPrompt(self.text[start:end], [each - start for each in inside], self.known)

    def find(self, token_text: str, start: int) -> int:
        """Return the first index from `start` on at which a control token `token_text` begins; -1: none."""
        return find_unbroken(self.text, token_text, start, len(self.text), self.breaks)


class ControlTexts:
    """The texts of a vocabulary's control tokens."""

    def __init__(self, special: SpecialTokens) -> None:
        self._special = special
        texts = [token.text for token in special.control if len(token.text) >= _SHORTEST]
        self._beginnings = {text[:n] for text in texts for n in range(1, len(text))}
        self._ends = {text[n:] for text in texts for n in range(1, len(text))}
        self._longest = max(map(len, texts), default=0)

    def breaks(self, text: str) -> list[int]:
        """Return ascending positions in `text`, at least one inside each text of a control token.

        This includes control tokens that may begin before `text`, or end after it, in the prompt.
        """
        found = set[int]()
        for token in self._special.occurring(text):
            if token.control and len(token.text) >= _SHORTEST:
                found |= {at + 1 for at in _occurrences(text, token.text)}
        n_max = min(self._longest, len(text) + 1)
        found |= {len(text) - n + 1 for n in range(1, n_max) if text[-n:] in self._beginnings}
        found |= {n - 1 for n in range(1, n_max) if text[:n] in self._ends}
        return sorted(found)


class _Marks:
    """Marks in the texts of one conversation: a word that no client can guess and no template changes."""

    def __init__(self, texts: ControlTexts) -> None:
        self._breaks = functools.cache(texts.breaks)  # names of fields and roles are repeated
        self._mark = f"q{secrets.token_hex(12)}q"
        self.n = 0

    def add(self, value: Any) -> Any:
        """Return `value` with marks in all its texts, including texts in lists and objects."""
        if isinstance(value, str):
            return self._add_to_text(value)
        if isinstance(value, dict):
            return {self.add(key): self.add(item) for key, item in value.items()}
        return [self.add(item) for item in value] if isinstance(value, list) else value

    def add_for_users(self, value: Any) -> Any:
        """Return `value` with marks, except in the assistant's messages, which some templates take apart."""
        if isinstance(value, list):
            return [self.add_for_users(item) for item in value]
        is_answer = isinstance(value, dict) and value.get("role") == "assistant"
        return value if is_answer else self.add(value)

    def remove(self, text: str) -> tuple[str, list[int]]:
        """Return the text without marks, and the positions that they had."""
        pieces = text.split(self._mark)
        ends = itertools.accumulate(len(piece) for piece in pieces[:-1])
        return "".join(pieces), list(ends)

    def _add_to_text(self, text: str) -> str:
        breaks = self._breaks(text)
        if not breaks:
            return text
        self.n += len(breaks)
        return self._mark.join(text[start:end] for start, end in itertools.pairwise([0, *breaks, None]))


def render_prompt(template: ChatTemplate, conversation: TemplateInput, texts: ControlTexts) -> RenderedPrompt:
    """Render the prompt of a conversation; raises RequestError."""
    marks = _Marks(texts)
    marked = _render(template, conversation, marks.add)
    if marked is not None and not marks.n:
        return RenderedPrompt(marked)
    prompt = template.render(conversation)  # raises RequestError if it was not caused by the marks
    if marked is not None and (found := marks.remove(marked))[0] == prompt:
        return RenderedPrompt(prompt, found[1])
    marked = _render(template, conversation, marks.add_for_users)
    if marked is not None and (found := marks.remove(marked))[0] == prompt:
        return RenderedPrompt(prompt, found[1], known=False)
    return RenderedPrompt(prompt, known=False)


def _render(template: ChatTemplate, conversation: TemplateInput, mark: Callable[[Any], Any]) -> str | None:
    try:
        return template.render(conversation, mark)
    except RequestError:
        return None


def _occurrences(text: str, wanted: str) -> Iterator[int]:
    at = text.find(wanted)
    while at >= 0:
        yield at
        at = text.find(wanted, at + 1)
