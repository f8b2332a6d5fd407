"""Prompts for filling a gap in a text (`/infill`): the same tokens as llama-server's `format_prompt_infill`.

    [REP]myproject  [SEP]name  extra file …  [SEP]filename  [PRE]prefix prompt  [SUF]suffix  [MID]

Files of the request come first and are cut at their beginning. With `spm` the suffix comes before the prefix.
"""

from array import array

from lead.infill.gap import Gap
from shared.errors import UnsupportedError
from shared.llama.vocabulary import Vocabulary

_N_NEAR = 2048
"""The maximum number of tokens around the gap, llama-server's --batch-size; three quarters are before it."""
_SNIPPET = "\n\n--- snippet ---\n\n"
"""The text between files for a model without a token for it."""


def _gap_tokens(vocabulary: Vocabulary) -> tuple[int, int, int]:
    """Return the tokens before prefix, suffix and middle; raises UnsupportedError if the model lacks one."""
    pre, suf, mid, *_ = vocabulary.fim
    if pre is None or suf is None or mid is None:
        names = {"prefix": pre, "suffix": suf, "middle": mid}
        missing = " ".join(f"{name} token is missing." for name, token in names.items() if token is None)
        raise UnsupportedError(f"Infill is not supported by this model: {missing}")
    return pre, suf, mid


def infill_prompt(gap: Gap, vocabulary: Vocabulary) -> "array[int]":
    """Return the tokens of the prompt; raises UnsupportedError."""
    pre, suf, mid = _gap_tokens(vocabulary)
    prompt = vocabulary.encode(gap.prompt, add_special=False, parse_special=True)
    # A context that is not twice as large would be full with what is near.
    n_near = min(_N_NEAR, gap.n_ctx // 2)
    n_before, n_after = 3 * (n_near // 4), max(0, n_near // 4 - 2 - len(prompt))
    prefix = array("i", [pre]) + _plain(gap.prefix, vocabulary)[-n_before:] + prompt
    suffix = array("i", [suf]) + _plain(gap.suffix, vocabulary)[:n_after]
    first, second = (suffix, prefix) if gap.spm else (prefix, suffix)
    begin = array("i", [vocabulary.bos] if vocabulary.adds_bos and vocabulary.bos is not None else [])
    n_extra = max(0, gap.n_ctx - n_near - 2 * gap.n_predict)
    extra = _extra(gap, vocabulary)
    return extra[max(0, len(extra) - n_extra) :] + begin + first + second + array("i", [mid])


def _extra(gap: Gap, vocabulary: Vocabulary) -> "array[int]":
    """Return the other files, and the tokens around them for a model that knows repositories."""
    tokens = vocabulary.fim
    found = array("i")
    if tokens.rep is not None:
        found += array("i", [tokens.rep]) + _plain("myproject\n", vocabulary)
    for name, text in gap.extra:
        found += _file_begin(name, vocabulary) or _plain(_SNIPPET, vocabulary)
        found += _plain(text, vocabulary)
    return found + _file_begin("filename", vocabulary)


def _file_begin(name: str, vocabulary: Vocabulary) -> "array[int]":
    """Return the tokens that begin a file; empty if the model has no token for it."""
    separator = vocabulary.fim.sep
    return array("i") if separator is None else array("i", [separator]) + _plain(f"{name}\n", vocabulary)


def _plain(text: str, vocabulary: Vocabulary) -> "array[int]":
    return vocabulary.encode(text, add_special=False, parse_special=False)
