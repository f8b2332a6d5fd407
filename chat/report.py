"""Makes the sentences and tables that chat shows, without I/O. It knows no colors or terminals."""

import re
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from chat.answer import ChatAnswer, Comparison, GenerationStats, SessionStats
from chat.commands import COMMANDS
from chat.conversation import ChatConversation
from chat.sampling import Sampling
from shared.diagnostics.findings import count
from shared.diagnostics.lead_probe import BackReport

SEPARATOR = " · "
_BACK_HEADER = ("name", "model", "link", "since", "drafts", "tokens", "used", "accepted", "stale", "invalid")
_N_TEXT_COLUMNS = 3
_COLUMN_BREAK = re.compile(r"\S {2,}(?=\S)")
_MAX_HANGING = 0.6
"""The largest indentation, as a share of the width. Text that is indented further is hard to read."""

_GUIDE = (
    "All other text is sent to the model. Alt-Enter or a backslash at the end of a line starts a "
    "new line. Ctrl-X Ctrl-E opens the text in $EDITOR. Up shows earlier input, and Ctrl-R "
    "searches it. Tab completes commands. Ctrl-C stops an answer. Colored words are accepted "
    "drafts, with one color for each source."
)


def summary(answer: ChatAnswer) -> list[str]:
    parts = figures(answer.stats)
    if answer.finish_reason == "length":
        parts.append("cut at the token limit")
    elif answer.finish_reason is None:
        parts.append("stopped early")
    return parts


def figures(of: GenerationStats) -> list[str]:
    parts = [count(of.n_tokens, "token")]
    if of.tokens_per_second is not None:
        parts.append(f"{of.tokens_per_second:.1f} tokens/s")
    if of.accepted_share is not None:
        parts.append(f"{of.n_accepted} of {of.n_drafted} draft tokens accepted ({of.accepted_share:.0%})")
    return parts


def stats(of: SessionStats) -> str:
    if of.last is None:
        return "No answers yet."
    rows = [("session", SEPARATOR.join([count(of.n_answers, "answer"), *figures(of.total)]))]
    rows += [("last answer", SEPARATOR.join(_details(of.last)))]
    return table(rows)


def settings(conversation: ChatConversation) -> str:
    return table([setting_row(conversation.sampling, name) for name in Sampling.model_fields])


def setting_row(sampling: Sampling, name: str) -> tuple[str, str, str]:
    value = getattr(sampling, name)
    meaning = Sampling.model_fields[name].description or ""
    return name, "server's default" if value is None else str(value), meaning


def backs(found: Sequence[BackReport] | None, columns: int | None = None) -> str:
    """Return a table with one row per back, or one paragraph per back if rows would exceed `columns`."""
    if found is None:
        return "This server does not speculate."
    if not found:
        return "No backs are connected."
    rows = [_back_row(back) for back in found]
    shown = table([_BACK_HEADER, *rows], n_text_columns=_N_TEXT_COLUMNS)
    if columns is None or max(map(len, shown.splitlines())) <= columns:
        return shown
    pairs = [[("  " + name, value) for name, value in zip(_BACK_HEADER, row, strict=True)] for row in rows]
    return "\n".join(f"{row[0]}\n{table(about[1:])}" for row, about in zip(rows, pairs, strict=True))


def connected(found: Sequence[BackReport] | None) -> str:
    """Return the part of the status line about backs; empty if the server does not speculate."""
    return "" if found is None else count(len(found), "back")


def progress(answer: ChatAnswer, connected_backs: str, columns: int | None = None) -> str:
    of = answer.stats
    parts = _short_figures(of) if of.n_tokens else [StatusPart("waiting for the first token", 0)]
    return fitted([*parts, StatusPart(connected_backs, 2), StatusPart("Ctrl-C stops it", 3)], columns)


def status(model: str | None, of: SessionStats, connected_backs: str, columns: int | None = None) -> str:
    last = _short_figures(of.last.stats) if of.last else []
    return fitted(
        [StatusPart(model or "", 5), *last, StatusPart(connected_backs, 2), StatusPart(":help", 3)], columns
    )


class StatusPart(NamedTuple):
    """A part of a status line.

    If there is no room for all parts, the parts with the highest `rank` are left out first.
    """

    text: str
    rank: int


def fitted(parts: Sequence[StatusPart], columns: int | None) -> str:
    """Return the status line of the parts that fit into `columns`, in their order; empty parts are
    skipped.
    """
    kept = [part for part in parts if part.text]
    while len(kept) > 1 and columns is not None and len(_joined(kept)) > columns:
        kept.remove(max(kept, key=lambda part: part.rank))
    return _joined(kept)


def _joined(parts: Sequence[StatusPart]) -> str:
    return SEPARATOR.join(part.text for part in parts)


def comparison(of: Comparison) -> str:
    rows = [("", "tokens", "tokens/s", "accepted")]
    for name, answer in (("with speculation", of.with_drafts), ("without", of.without)):
        rate, share = answer.stats.tokens_per_second, answer.stats.accepted_share
        shown_rate = "-" if rate is None else f"{rate:.1f}"
        rows.append((name, str(answer.stats.n_tokens), shown_rate, "-" if share is None else f"{share:.0%}"))
    return f"{table(rows, n_text_columns=1)}\n{of.verdict}"


def record(answer: ChatAnswer) -> dict[str, Any]:
    """Return an answer as a JSON-compatible record, for programs; None stands for values that the server did
    not report.
    """
    of = answer.stats
    return {
        "answer": answer.text,
        "finish_reason": answer.finish_reason,
        "seed": answer.seed,
        "n_prompt_tokens": answer.usage.prompt_tokens if answer.usage else None,
        "n_tokens": of.n_tokens,
        "tokens_per_second": None if of.tokens_per_second is None else round(of.tokens_per_second, 2),
        "n_drafted": of.n_drafted,
        "n_accepted": of.n_accepted,
        "n_accepted_by_source": dict(answer.n_accepted_by_source),
    }


def names(of: Sequence[str], none: str) -> str:
    """Return one name per line, or the sentence `none` if `of` is empty."""
    return "\n".join(of) or none


def models(of: Sequence[str], chosen: str | None) -> str:
    rows = [f"{'*' if name == chosen else ' '} {name}" for name in of]
    return names(rows, "The server lists no models.")


def filled(parts: Sequence[str], columns: int | None) -> list[list[str]]:
    """Distribute the parts, in order, over as few lines as possible; one line if `columns` is None.

    The width of the separators between parts counts, but they are not inserted.
    """
    lines: list[list[str]] = [[]]
    for part in parts:
        if lines[-1] and columns is not None and len(SEPARATOR.join([*lines[-1], part])) > columns:
            lines.append([])
        lines[-1].append(part)
    return lines


def wrapped(text: str, columns: int | None) -> str:
    """Wrap long lines between words; a table row continues in the row's last column."""
    if columns is None:
        return text
    return "\n".join(_broken(line, columns) for line in text.split("\n"))


def _broken(line: str, columns: int) -> str:
    if len(line) <= columns:
        return line
    starts = [match.end() for match in _COLUMN_BREAK.finditer(line)]
    indent = " " * starts[-1] if starts and starts[-1] <= columns * _MAX_HANGING else ""
    return "\n".join(textwrap.wrap(line, columns, replace_whitespace=False, subsequent_indent=indent))


def help_text(columns: int | None) -> str:
    rows = table([(entry.usage, entry.meaning) for entry in COMMANDS])
    return wrapped(f"{rows}\n\n{_GUIDE}", columns or 80)


def table(rows: Sequence[Sequence[str]], n_text_columns: int | None = None) -> str:
    """Align the rows in columns two spaces apart; columns from `n_text_columns` on are numbers and
    right-aligned.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    n_left = len(widths) if n_text_columns is None else n_text_columns

    def cell(text: str, index: int) -> str:
        return text.ljust(widths[index]) if index < n_left else text.rjust(widths[index])

    return "\n".join("  ".join(cell(text, i) for i, text in enumerate(row)).rstrip() for row in rows)


def duration(seconds: float) -> str:
    """Return a duration in one short unit, for tables: 12s, 3m, 2h, 5d."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def _short_figures(of: GenerationStats) -> list[StatusPart]:
    parts = [StatusPart(count(of.n_tokens, "token"), 4)]
    if of.tokens_per_second is not None:
        parts.append(StatusPart(f"{of.tokens_per_second:.1f} tokens/s", 0))
    if of.accepted_share is not None:
        parts.append(StatusPart(f"{of.accepted_share:.0%} accepted", 1))
    return parts


def _details(answer: ChatAnswer) -> list[str]:
    parts = figures(answer.stats)
    if answer.timings is not None:
        prompt = (
            f"prompt {count(answer.timings.prompt_n, 'token')} in {answer.timings.prompt_ms / 1000:.2f} s"
        )
        parts.append(f"{prompt} ({answer.timings.cache_n} more from the cache)")
    if answer.seed is not None:
        parts.append(f"seed {answer.seed}")
    return parts


def _back_row(back: BackReport) -> tuple[str, ...]:
    # A name is the peer's own choice: a line break in it would forge a row.
    texts = (" ".join(text.split()) for text in (back.name, back.model, back.transport))
    share = f" ({back.n_accepted_tokens / back.n_used_tokens:.0%})" if back.n_used_tokens else ""
    return (
        *texts,
        duration(back.connected_seconds),
        str(back.n_drafts),
        str(back.n_draft_tokens),
        str(back.n_used_tokens),
        f"{back.n_accepted_tokens}{share}",
        str(back.n_stale_drafts),
        str(back.n_invalid_drafts),
    )
