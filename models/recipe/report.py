"""The evaluation's report, in Markdown."""

from collections import defaultdict
from itertools import chain, zip_longest

from chatml import Message
from tally import HEAD, Tally

_INTRODUCTION = (
    "Held-out prompts, run through llama.cpp. Greedy columns: along the target's own greedy answers, how"
    " often the draft's best token is the target's token, and how many tokens one target pass yields with up"
    " to that many guesses. The last three columns: temperature 1, along answers sampled from the target (p"
    " target, q draft)."
)
_RULE = "\n\n---\n\n"


class Report:
    """Collects tallies, right answers and sample dialogues by category."""

    def __init__(self, title: str) -> None:
        self._title = title
        self.tallies: dict[str, Tally] = defaultdict(Tally)
        self.exact: dict[str, list[bool]] = defaultdict(list)
        self.shown: dict[str, list[str]] = defaultdict(list)

    def text(self, n_samples: int, long_chat: list[Message], n_long: int) -> str:
        """Everything, with `n_samples` dialogues and the long conversation of `n_long` tokens."""
        categories = [category for category in self.tallies if category != "all"]
        lines = [f"# Evaluation of {self._title}", "", _INTRODUCTION, "", HEAD]
        lines += [self.tallies[category].row(category) for category in [*categories, "all"]]
        lines.append("")
        lines += [
            f"Answer exactly as expected, {category}: {sum(hits)} of {len(hits)}."
            for category, hits in self.exact.items()
        ]
        lines += ["", "## Sample dialogues (greedy)", "", _RULE.join(self._samples(n_samples))]
        lines += ["", f"## One long conversation (greedy, {n_long} tokens)", ""]
        lines += [f"{talk([message])}\n" for message in long_chat]
        return "\n".join(lines) + "\n"

    def _samples(self, n: int) -> list[str]:
        """The first dialogue of each category, then the second of each, and so on."""
        rounds = zip_longest(*self.shown.values())
        return [sample for sample in chain.from_iterable(rounds) if sample is not None][:n]


def talk(messages: list[Message]) -> str:
    return "\n\n".join(f"**{message['role']}:** {message['content']}" for message in messages)
