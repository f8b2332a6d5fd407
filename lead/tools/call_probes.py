"""Derives the format of calls from a chat template: renders calls with known texts, and searches the texts in
the result.

llama.cpp's `common/chat-diff-analyzer.cpp` finds the format by comparing pairs of renderings.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lead.chat_format.markers import BEGUN, MARKER, common_prefix, whole
from lead.chat_format.probes import ANSWERED, ASKED, CONTENT, QUESTION, Render
from lead.tools.call_format import ID, NAME, NUMBER, CallFormat, TaggedArguments
from lead.tools.notation import spellings

_NAMES, _IDS = ("probeone", "probetwo"), ("callid001", "callid002")
_KEYS, _VALUES = ("keyone", "keytwo"), ("valueone", "valuetwo")
_VALUES_BY_TYPE: Mapping[str, object] = {
    "integer": 17,
    "number": 1.5,
    "boolean": True,
    "null": None,
    "array": [1, "b c", {"d": True}],
    "object": {"e": [False, "f g"], "h": 2},
}
_MARKED = "a <b> c"
_REST = re.compile(r"[^<>\s\[\]]*[>\]]")

_TOOLS = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "probe",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string", "description": "probe"} for key in _KEYS},
                "required": [],
            },
        },
    }
    for name in _NAMES
)


class _NotDerivedError(Exception):
    """No known format explains how the template has written the probes."""


def derive_call_format(render: Render, unfinished: str = "") -> tuple[CallFormat, bool] | None:
    """Return the format of calls, and whether the template takes a call's arguments as an object (else as
    JSON text).

    None if the template writes no calls, or writes them in a form that cannot be recognized. unfinished: text
    at the end of prompts that is part of the answer.
    """
    plain = render([ASKED, ANSWERED], _TOOLS)
    if plain is None or CONTENT not in plain:
        return None
    begin = (render([ASKED], _TOOLS, opened=True) or "").removesuffix(unfinished)
    for as_object in (True, False):
        for n_calls in (2, 1):
            try:
                probes = _Probes(render, plain, begin, n_calls, as_object=as_object)
                return replace(probes.derive(), id_characters=probes.id_characters()), as_object
            except _NotDerivedError:
                continue
    return None


class _Probes:
    def __init__(self, render: Render, plain: str, begin: str, n_calls: int, *, as_object: bool) -> None:
        self._render = render
        self._begin = begin
        self._plain = plain
        self._turn = plain[plain.rfind(QUESTION) :]
        self._turn_end = plain[plain.rfind(CONTENT) + len(CONTENT) :]
        self._n_calls = n_calls
        self._as_object = as_object

    def derive(self) -> CallFormat:
        """Return the format that the probes show; raises _NotDerivedError."""
        arguments = dict(zip(_KEYS, _VALUES, strict=True))
        text = self._written([arguments] * self._n_calls)
        if repr(arguments) in text:  # the template expects JSON text
            raise _NotDerivedError
        key, value = (rf'"{each}"' for each in ("%s", "%s"))
        members = r",\s*".join(rf"{key}:\s*{value}" % pair for pair in zip(_KEYS, _VALUES, strict=True))
        pieces = re.split(rf"\{{\s*{members}\s*\}}", text)
        if len(pieces) == self._n_calls + 1:
            return self._framed(pieces)
        return self._tagged(text)

    def id_characters(self) -> int:
        """Return the length of the probes' ids if the template refuses longer ids, else 0."""
        try:
            self._written([{}], longer_ids="0")
        except _NotDerivedError:
            return len(_IDS[0])
        return 0

    def _written(self, arguments: Sequence[Mapping[str, object]], longer_ids: str = "") -> str:
        """Render calls with these arguments; return the text from the point where content would begin."""
        calls = [
            {
                "id": call_id + longer_ids,
                "type": "function",
                "function": {"name": name, "arguments": each if self._as_object else json.dumps(each)},
            }
            for call_id, name, each in zip(_IDS, _NAMES, arguments, strict=False)
        ]
        text = self._render([ASKED, {"role": "assistant", "content": "", "tool_calls": calls}], _TOOLS)
        if text is None or not all(
            name in text or call_id in text for name, call_id in zip(_NAMES, _IDS[: len(calls)], strict=False)
        ):
            raise _NotDerivedError
        text = text[self._n_shared(text) :]
        for names, place in ((_NAMES, NAME), (_IDS, ID)):
            for name in names:
                text = text.replace(name, place)
        return text

    def _n_shared(self, text: str) -> int:
        """Return the length of the beginning that `text` shares with a message with content.

        Only text that the template writes for any answer counts.
        """
        n = len(whole(common_prefix(text, self._plain)))
        has_header = not self._plain[n:].lstrip().startswith(CONTENT)
        begins = text.startswith(self._begin) and self._plain.startswith(self._begin)
        return min(n, len(self._begin)) if has_header and begins else n

    # Arguments one by one

    def _tagged(self, text: str) -> CallFormat:
        (key1, key2), (value1, value2) = _KEYS, _VALUES
        parts = re.split(f"{key1}(.*?){value1}(.*?){key2}(.*?){value2}", text, flags=re.DOTALL)
        if len(parts) != 1 + 4 * self._n_calls or parts[1] != parts[3]:
            raise _NotDerivedError
        first, middle, inner, outer = parts[0], parts[1], parts[2], parts[4::4]
        key = _shared_end(inner, first)
        rest = inner[: len(inner) - len(key)]
        close = _shared_begin(rest, outer[-1])
        arguments = TaggedArguments(key, {}, close, rest[len(close) :])
        frames = [first, *(each[len(close) :] for each in outer)]
        frames = [*(each[: len(each) - len(key)] for each in frames[:-1]), frames[-1]]
        calls = replace(self._framed(frames), arguments=arguments)
        return replace(calls, arguments=self._with_types(calls, arguments, middle))

    def _with_types(self, calls: CallFormat, arguments: TaggedArguments, middle: str) -> TaggedArguments:
        """Return `arguments` with the texts around values of each type. middle: the text before strings."""
        number = self._around("integer", "17")
        if number and middle != number[0] and middle.startswith(number[0]):
            arguments = _with_quotes(arguments, middle[len(number[0]) :], number[1], calls.tail)
            middle = number[0]
        after = arguments.close + calls.tail[:1]
        middles = {"string": middle}
        for kind, value in _VALUES_BY_TYPE.items():
            around = (self._around(kind, spelling + after) for spelling in spellings(value, arguments.quotes))
            found = next(filter(None, around), None)
            if found is None:
                raise _NotDerivedError
            middles[kind] = found[0]
        return replace(arguments, middles=middles, escaped=self._escaped(middle, after))

    def _escaped(self, middle: str, after: str) -> tuple[str, str]:
        """Return the texts around a string that contains a mark; empty if other strings have these, too."""
        text = self._written([{_KEYS[0]: _MARKED}])
        before, found, behind = text[text.find(_KEYS[0]) + len(_KEYS[0]) :].partition(_MARKED)
        end = behind.find(after) if after else 0
        return (before.removeprefix(middle), behind[:end]) if found and before != middle else ("", "")

    def _around(self, kind: str, spelling: str) -> tuple[str, str] | None:
        """Return the texts around a single argument of this type; None: it is not spelled like `spelling`."""
        text = self._written([{_KEYS[0]: _VALUES_BY_TYPE[kind]}])
        before, found, after = text[text.find(_KEYS[0]) + len(_KEYS[0]) :].partition(spelling)
        return (before, after) if found else None

    # Around the arguments

    def _framed(self, frames: Sequence[str]) -> CallFormat:
        """Return the format with these texts before, between and after the arguments of all calls."""
        first, *middles, last = frames
        if not middles:
            return self._with_starts(CallFormat(first, last.removesuffix(self._turn_end)))
        middle = middles[0]
        numbered = ((_numbered(first, n), _numbered(middle, n + 1)) for n in (0, 1))
        ways = [(first, middle), *numbered]
        first, middle = max(ways, key=lambda way: len(_shared_end(way[1], way[0]).strip(NUMBER)))
        head = _shared_end(middle, first)
        rest = middle[: len(middle) - len(head)]
        tail = _shared_begin(rest, last)
        before = self._own(first[: len(first) - len(head)])
        calls = CallFormat(head, tail, before, rest[len(tail) :], self._closing(last[len(tail) :], before))
        return self._with_starts(calls)

    def _closing(self, text: str, before: str) -> str:
        """Return the beginning of `text` that closes the markers in `before`; the end of the turn follows."""
        if end := MARKER.search(self._turn_end):
            text = text.partition(end[0])[0]
        n_open = len(MARKER.findall(before)) + before.rstrip().endswith("[")
        ends = [match.end() for match in re.finditer(rf"{MARKER.pattern}|\]", text)]
        return text[: ends[min(n_open, len(ends)) - 1]] if n_open and ends else ""

    def _own(self, text: str) -> str:
        """Return `text` from the first marker that only calls have; empty reasoning may come before it."""
        at = next((mark.start() for mark in MARKER.finditer(text) if mark[0] not in self._turn), 0)
        return text[at:] if MARKER.search(text[:at]) else text

    def _with_starts(self, calls: CallFormat) -> CallFormat:
        found = (start for text in (calls.before, calls.head) for start in self._starts_in(text))
        starts = (start.replace("\n", space) for start in found for space in ("\n", " ", ""))
        return replace(calls, starts=tuple(dict.fromkeys(starts)))

    def _starts_in(self, text: str) -> list[str]:
        """Return the parts of `text` that occur only where a call begins.

        These are its first marker that only calls have, and an incomplete marker at its end.
        """
        text = re.split(rf"[{NAME}{ID}{NUMBER}{{]", text, maxsplit=1)[0].strip("\n")
        own = [mark for mark in MARKER.findall(text) if mark not in self._turn][:1]
        own += re.findall(r"<[^<>]+$", text)
        if own or not text.strip():
            return own
        text = text.removesuffix("[").strip("\n")
        begins = [0, *(match.start() for match in MARKER.finditer(text))]
        return [rest for at in begins if MARKER.sub("", rest := text[at:]).strip()]


def _with_quotes(arguments: TaggedArguments, opening: str, after: str, tail: str) -> TaggedArguments:
    """Return `arguments` with `quotes`. after: the text after an argument that is not a string."""
    close = arguments.close
    n = next((n for n in range(len(close) + 1) if after.startswith(close[n:] + tail)), 0)
    return replace(arguments, close=close[n:], quotes=(opening, close[:n]))


def _numbered(text: str, n: int) -> str:
    return re.sub(rf"(?<![\w.]){n}(?![\w.])", NUMBER, text)


def _shared_begin(text: str, other: str) -> str:
    n = len(common_prefix(text, other))
    return text if n == len(text) else whole(text[:n])


def _shared_end(text: str, other: str) -> str:
    n = len(common_prefix(text[::-1], other[::-1]))
    shared = text[len(text) - n :]
    cut = _REST.match(shared) if BEGUN.search(text[: len(text) - n]) else None
    return shared[cut.end() :] if cut else shared
