"""What a generated text took, and how two compare, in words. Pure."""

from dataclasses import dataclass
from itertools import takewhile

from lead.generation.answer_stats import AnswerStats
from shared.diagnostics.findings import count

_N_SHOWN = 30


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """A text that was generated."""

    text: str
    stats: AnswerStats

    @property
    def seconds(self) -> float:
        """With the time for the prompt."""
        return self.stats.prompt_seconds + self.stats.generation_seconds


def report(text: GeneratedText) -> str:
    """Some lines about one text."""
    stats = text.stats
    rows = [
        ("prompt", f"{count(stats.n_prompt, 'token')} in {stats.prompt_seconds:.2f} s"),
        (
            "generated",
            f"{count(stats.n_generated, 'token')} in {stats.generation_seconds:.2f} s{_rate(text)}",
        ),
    ]
    if stats.n_drafted:
        rows.append(("drafts", _drafts(stats)))
    return _aligned(rows)


def compare(plain: GeneratedText, drafted: GeneratedText, drafter: str) -> str:
    """Some lines about the same text, without drafts and with them."""
    rows = [
        ("plain", f"{_seconds(plain)}{_rate(plain)}"),
        (f"with {drafter}", f"{_seconds(drafted)}{_rate(drafted)}"),
        ("drafts", _drafts(drafted.stats)),
        ("speed-up", _speed_up(plain, drafted)),
        ("same text", _same(plain.text, drafted.text)),
    ]
    return _aligned(rows)


def _aligned(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:>{width}}  {text}" for name, text in rows)


def _seconds(text: GeneratedText) -> str:
    return f"{count(text.stats.n_generated, 'token')} in {text.seconds:.2f} s"


def _rate(text: GeneratedText) -> str:
    rate = text.stats.tokens_per_second
    return "" if rate is None else f", {rate:.1f} tokens/s"


def _drafts(stats: AnswerStats) -> str:
    if not stats.n_drafted:
        return "none were worth verifying"
    return (
        f"{stats.n_accepted} of {stats.n_drafted} tokens accepted ({stats.n_accepted / stats.n_drafted:.0%})"
    )


def _speed_up(plain: GeneratedText, drafted: GeneratedText) -> str:
    slow, fast = plain.stats.tokens_per_second, drafted.stats.tokens_per_second
    return "the texts are too short to tell" if slow is None or fast is None else f"{fast / slow:.2f}"


def _same(one: str, other: str) -> str:
    if one == other:
        return "yes, every character"
    n_same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    return (
        f"NO: from character {n_same + 1} on {other[n_same:][:_N_SHOWN]!r} with drafts, and "
        f"{one[n_same:][:_N_SHOWN]!r} without"
    )
