"""Derives the format of answers from a chat template: where reasoning and content begin and end.

It renders answers with known texts, and searches the texts in the result. `lead.tools.call_probes` does the
same for tool calls.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lead.chat_format.markers import MARKER, common_prefix, whole
from lead.chat_format.output_format import AnswerFormat, ReasoningMarkers, with_thinking
from lead.chat_format.probes import ANSWERED, ASKED, CONTENT, QUESTION, Render

_REASONING = "reasoningprobe"
_FIELDS: Mapping[str, Mapping[str, Any]] = {
    **{field: {field: _REASONING} for field in ("reasoning_content", "reasoning", "thinking")},
    "content": {"content": with_thinking(_REASONING, CONTENT)},
}
_FUNCTION = {"name": "probe", "arguments": {"key": "value"}}
_CALLS = [{"id": "callid001", "type": "function", "function": _FUNCTION}]
_SWITCHES: tuple[dict[str, Any], ...] = (
    {},
    *({"enable_thinking": on, "thinking": on} for on in (True, False)),
)
_BEGUN_OR_EMPTY = re.compile(rf" ?((?:{MARKER.pattern})[^\s<]*\s*)({MARKER.pattern})?\s*")
_AS_JSON = re.compile("['\"]type['\"]")
_UNFINISHED = re.compile(r"(?<=\s)[^\w\s<\[:]{2,}\Z")

_THINK = ReasoningMarkers("<think>\n", "\n</think>\n\n")
_INNER = ReasoningMarkers("<|inner_prefix|>", "<|inner_suffix|>", interleaved=True)
_NOT_SHOWN: tuple[tuple[str, ReasoningMarkers | None, tuple[str, ...]], ...] = (
    # Granite 3.3: a sentence of the system message asks the model for the markers.
    ("<response></response>", _THINK, ("<response>", "</response>")),
    # Apertus: the template takes reasoning from a kind of content block that no API has.
    ("<|inner_prefix|>", _INNER, ()),
    # gpt-oss: channels of content that are not kept in history.
    (
        "<|channel|>",
        None,
        (
            "<|channel|>final <|constrain|>json<|message|>",
            "<|channel|>commentary<|message|>",
            "<|channel|>commentary to=assistant",
        ),
    ),
)
"""Answer formats that cannot be found by rendering messages. Each has a text that identifies its template,
the markers of reasoning (None: as found), and ignored markers.
"""


def derive_answer_format(render: Render, source: str) -> AnswerFormat:
    """Derive the format of answers of a model from its template, which has this `source`."""
    try:
        found = _AnswerProbes(render).derive()
    except IndexError:  # the template refuses even one question
        found = AnswerFormat()
    for sign, reasoning, ignored in _NOT_SHOWN:
        if sign in source:
            return replace(found, reasoning=reasoning or found.reasoning, ignored=(*found.ignored, *ignored))
    return found


class _AnswerProbes:
    """Texts of answers, each from the end of the question on. `_header`: the beginning of all answers."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._field, self._shown = self._with_reasoning()
        self._prompts = self._rendered(opened=True)
        self._answers = self._rendered(ANSWERED)
        past = self._rendered(ANSWERED, ASKED, ANSWERED)
        header = whole(common_prefix(*self._prompts, *self._answers, *self._shown, *past))
        self._unfinished = found[0] if (found := _UNFINISHED.search(header)) else ""
        self._header = header.removesuffix(self._unfinished)

    def _rendered(self, *messages: Mapping[str, Any], opened: bool = False) -> list[str]:
        """Return renderings of the messages: with reasoning as by default, with it on, and with it off."""
        texts = [self._render([ASKED, *messages], opened=opened, **switch) for switch in _SWITCHES]
        found = [after for text in texts if (after := (text or "").partition(QUESTION)[2])]
        first = MARKER.search(found[0]) if found else None  # a switch may also be written behind the question
        return [text for text in found if first is None or text.startswith(found[0][: first.end()])]

    def _with_reasoning(self) -> tuple[str, list[str]]:
        """Return the message field whose reasoning the template writes, and renderings with reasoning.

        Renderings with content come before renderings with calls.
        """
        for field, given in _FIELDS.items():
            texts = self._rendered({**ANSWERED, **given})
            texts += self._rendered({**ANSWERED, "content": "", "tool_calls": _CALLS, **given})
            if found := [text for text in texts if _REASONING in text and not _AS_JSON.search(text)]:
                return field, found
        return "", []

    def derive(self) -> AnswerFormat:
        reasoning = self._written() or self._begun() or self._taken_out()
        if reasoning is None:
            return self._with_content(None, self._content(""))
        rest, content = self._split(reasoning)
        turns = (each for each in _marked_ends(self._header) if rest.endswith(each) and _names(each))
        turn = next((each for each in turns if MARKER.search(rest.removesuffix(each))), "")
        reasoning = replace(
            reasoning,
            closing=rest.removesuffix(turn),
            turn=turn,
            content=content,
            interleaved=bool(turn) or _names(reasoning.opening),
        )
        return self._with_content(reasoning, content)

    # Reasoning

    def _written(self) -> ReasoningMarkers | None:
        """Return the markers around reasoning that the template writes; None: it writes none."""
        if not self._shown:
            return None
        before, _, after = self._shown[0].partition(_REASONING)
        opening = before[len(self._header) :]
        if not opening.strip():
            only = (text for text in self._prompts if not self._answers[0].startswith(text.rstrip()))
            opening = (next(only, "")[len(self._header) :] or _last_marked(self._header)) + opening
        elif MARKER.match(opening.lstrip()) is None and (mark := _last_marked(self._header)).endswith(">"):
            self._header, opening = self._header.removesuffix(mark), mark + opening
        closing, found, _ = after.partition(CONTENT)
        if not found and (end := MARKER.search(after)):
            closing = after[: end.end()]
        return ReasoningMarkers(opening, closing, field=self._field)

    def _begun(self) -> ReasoningMarkers | None:
        """Return the markers of reasoning that prompts begin, or leave empty; None: there are none."""
        for text in sorted(self._prompts, key=len, reverse=True):
            if found := _BEGUN_OR_EMPTY.fullmatch(text, len(self._header)):
                opening, closing, before = found[1], found[2], _last_marked(self._header)
                if MARKER.fullmatch(before.rstrip()) and self._answers[0].startswith(text):
                    opening, closing = before, opening  # always begun, and ended without reasoning
                return _spaced(opening, closing or f"</{opening[1:].rstrip()}")
        return None

    def _taken_out(self) -> ReasoningMarkers | None:
        """Return the markers of the reasoning that the template removes from earlier answers.

        None: it removes none.
        """
        for opening in (_last_marked(self._prompts[0]), "<think>"):  # what prompts end with, and the usual
            if opening.startswith("<"):
                found = _spaced(opening, f"</{opening[1:].rstrip()}")
                content = f"{found.start}{_REASONING}{found.end}{CONTENT}"
                texts = self._rendered({**ANSWERED, "content": content}, ASKED, ANSWERED)
                if texts and _REASONING not in texts[0] and texts[0].count(CONTENT) > 1:
                    return found
        return None

    # Content

    def _split(self, reasoning: ReasoningMarkers) -> tuple[str, str]:
        """Split the text after reasoning: return the end of reasoning, and the beginning of the content."""
        begun = len(self._header)
        for way in (text[begun:].partition(CONTENT)[0] for text in (*self._prompts, *self._answers)):
            rest = reasoning.closing.removesuffix(way)
            if way.strip() and rest.strip() and rest != reasoning.closing:
                return rest, way
        content = self._content(reasoning.end)
        return reasoning.closing, "" if reasoning.start in content else content

    def _content(self, end: str) -> str:
        """Return the text between the prompt and the content of an answer without reasoning.

        The end of (empty) reasoning is not such a text.
        """
        before = self._answers[0].partition(CONTENT)[0]
        is_own = any(before.startswith(text) for text in self._prompts)
        text = before[len(self._header) :] if is_own else ""
        return text if (MARKER.search(text) or self._unfinished) and not (end and end in text) else ""

    def _with_content(self, reasoning: ReasoningMarkers | None, content: str) -> AnswerFormat:
        """Return the format with its ignored markers: around content, and between messages of an answer."""
        n_marks = len(MARKER.findall(content))
        after = self._answers[0].partition(CONTENT)[2]
        ignored = [content]
        if n_marks:
            ignored += re.findall(rf"(?s)(?:.*?(?:{MARKER.pattern})){{1,{n_marks}}}", after)[:2]
        if reasoning and reasoning.turn:
            ignored += [reasoning.turn, reasoning.end]
        bare = (text.rstrip() for text in self._prompts)
        if reasoning and self._header.rstrip() in bare and not reasoning.is_open(self._header):
            without = self._answers[0][len(self._header) :].lstrip()
            ignored += [reasoning.end] * without.startswith(reasoning.end)
        return AnswerFormat(reasoning, tuple(dict.fromkeys(filter(None, ignored))), self._unfinished)


def _spaced(opening: str, end: str) -> ReasoningMarkers:
    """Return the markers; if `opening` ends with a line break, with the usual line breaks around them."""
    if not opening.endswith("\n"):
        return ReasoningMarkers(opening, end)
    return ReasoningMarkers(f"{opening.rstrip()}\n", f"\n{end}\n\n")


def _names(text: str) -> bool:
    """Return whether `text` has a word in addition to its markers."""
    return bool(MARKER.search(text) and re.search(r"\w", MARKER.sub("", text)))


def _marked_ends(text: str) -> list[str]:
    """Return for each marker in `text` the text from the marker on."""
    return [text[mark.start() :] for mark in MARKER.finditer(text)]


def _last_marked(text: str) -> str:
    return (_marked_ends(text) or [""])[-1]
