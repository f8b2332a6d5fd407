"""Writes llguidance's Lark, and checks whether a grammar may be used.

https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from lead.settings.limits import RequestLimits
from shared.errors import RequestError

if TYPE_CHECKING:  # see `check_grammar`
    from shared.llama.vocabulary import Vocabulary
    from shared.sampling.grammar import GrammarMatcher

_HEADER = '%llguidance {"no_forcing": true}'
"""Without this line, forced text gets only its usual tokens: the mask would allow less than the grammar."""

_MAX_COMPILE_SECONDS = 1.0
"""The maximum CPU time for checking a grammar. The lead and each back that follows the grammar take the same
time again. 128 tools, in all 450 KB with their descriptions, take 0.1 to 0.2 s with a vocabulary of 152,000
tokens.
"""


def lark_grammar(rules: Iterable[str]) -> str:
    """Return a complete grammar; one of the rules must be `start`."""
    return "\n".join([_HEADER, *rules]) + "\n"


def literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def spelled(text: str, special_tokens: Mapping[str, int]) -> str:
    """Return an expression for `text`; parts that are the text of a special token match that token, too."""
    marks = sorted((mark for mark in special_tokens if mark in text), key=len, reverse=True)
    if not marks:
        return literal(text)
    parts = re.split(f"({'|'.join(map(re.escape, marks))})", text)
    return " ".join(
        f"(<[{special_tokens[part]}]> | {literal(part)})" if part in special_tokens else literal(part)
        for part in parts
        if part
    )


def text_up_to(mark: str, name: str, rules: list[str], special_tokens: Mapping[str, int]) -> str:
    """Return an expression for any text up to and including the first `mark`; adds a rule called `name` to
    `rules`.
    """
    rules.append(f"{name}[suffix={literal(mark)}]: /(?s:.*)/")
    token = next((each for each in special_tokens if mark.endswith(each)), None)
    if token is None:
        return name
    before = re.escape(mark.removesuffix(token)).replace("/", r"\/")
    return f"({name} | /(?s:.*){before}/ <[{special_tokens[token]}]>)"


def check_size(text: str, limits: RequestLimits, param: str) -> None:
    """Raise RequestError naming `param` if a text is too large."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limits.max_grammar_bytes:
        raise RequestError(
            f"{param}: {size} bytes of grammar; at most {limits.max_grammar_bytes} are accepted", param
        )


def check_grammar(text: str, vocabulary: "Vocabulary", param: str) -> None:
    """Raise RequestError naming `param` unless llguidance compiles `text` within the limits.

    Compiles the text as the engine will, which takes as long: call this function in a thread.
    """
    from shared.sampling.grammar import GrammarMatcher, prepare  # noqa: PLC0415 - the front needs no llguidance

    prepare(vocabulary)  # the first time this takes long, which is not the grammar's fault
    begun = time.thread_time()
    try:
        _take_a_step(GrammarMatcher(text, vocabulary))
    except (ValueError, RequestError) as error:
        raise RequestError(f"{param}: {error}", param) from error
    if time.thread_time() - begun > _MAX_COMPILE_SECONDS:
        raise RequestError(f"{param}: compiling this grammar takes too long", param)


def _take_a_step(matcher: "GrammarMatcher") -> None:
    """Accept one allowed token, to test the limits of a step: many grammars are widest at their beginning."""
    if len(allowed := matcher.allowed()) and matcher.accept(int(allowed[0])):
        matcher.allowed()
