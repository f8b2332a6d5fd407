"""The figures of the connected backs, read when somebody looks."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lead.backs.registry import Backs

MOST_NAMES = 256
"""Backs choose their names, and each is a set of time series: later ones are summed up under OTHERS."""
OTHERS = "others"

_PREFIX = "llama_duo:back_"
_COUNTERS = {
    "drafts": "Drafts received",
    "draft_tokens": "Tokens in them; a draft repeats what is still open of the one before",
    "verified_tokens": "Draft tokens that were in a step",
    "accepted_tokens": "Of those the ones accepted",
    "wasted_tokens": "Of those the ones rejected",
    "stale_drafts": "Drafts that came too late to be of use",
    "invalid_drafts": "Drafts that were against the protocol",
    "excess_drafts": "Drafts beyond what a back may send in a second",
}


class BackFigures(Collector):
    """One series per connected back; those of a back that leaves end."""

    def __init__(self, backs: Backs) -> None:
        self._backs = backs
        self._names: set[str] = set()
        self.answer_seconds: Mapping[str, float] = {}
        """By back: see the metric of this name; the engine measures it."""

    def collect(self) -> Iterator[Metric]:
        """As they are now."""
        connected: Counter[str] = Counter()
        sums: dict[str, Counter[str]] = {name: Counter() for name in _COUNTERS}
        answers: dict[str, float] = {}
        for back in self._backs.describe():
            label = self._label(back["name"])
            connected[label] += 1
            for name, value in _figures(back).items():
                sums[name][label] += value
            if (seconds := self.answer_seconds.get(back["name"])) is not None:
                answers[label] = max(seconds, answers.get(label, 0.0))
        yield _gauge("connected", "Connected backs", dict(connected))
        yield _gauge(
            "answer_seconds",
            "From a commit to the back's first new token: the way there and back, and its draft step",
            answers,
        )
        for name, text in _COUNTERS.items():
            family = CounterMetricFamily(_PREFIX + name, text, labels=["back"])
            for label, total in sums[name].items():
                family.add_metric([label], total)
            yield family

    def _label(self, name: str) -> str:
        if name not in self._names and len(self._names) >= MOST_NAMES:
            return OTHERS
        self._names.add(name)
        return name


def _figures(back: Mapping[str, Any]) -> dict[str, int]:
    n_used, n_accepted = back["n_used_tokens"], back["n_accepted_tokens"]
    return {
        "drafts": back["n_drafts"],
        "draft_tokens": back["n_draft_tokens"],
        "verified_tokens": n_used,
        "accepted_tokens": n_accepted,
        "wasted_tokens": n_used - n_accepted,
        "stale_drafts": back["n_stale_drafts"],
        "invalid_drafts": back["n_invalid_drafts"],
        "excess_drafts": back["n_excess_drafts"],
    }


def _gauge(name: str, text: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(_PREFIX + name, text, labels=["back"])
    for label, value in values.items():
        family.add_metric([label], value)
    return family
