"""Metrics of the connected backs, read at each export."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lead.backs.registry import Backs

MOST_NAMES = 256
"""Backs choose their names, and each name is a set of time series: further names are summed under OTHERS."""
OTHERS = "others"

_PREFIX = "llama_duo:back_"
_COUNTERS = {
    "drafts": "Drafts received",
    "draft_tokens": "Tokens in drafts; a draft repeats the unverified tokens of the previous one",
    "verified_tokens": "Draft tokens verified in a step",
    "accepted_tokens": "Verified tokens that were accepted",
    "wasted_tokens": "Verified tokens that were rejected",
    "stale_drafts": "Drafts that arrived too late to be useful",
    "invalid_drafts": "Drafts that violated the protocol",
    "excess_drafts": "Drafts above the allowed rate",
}


class BackMetrics(Collector):
    """One series per connected back; the series of a disconnected back are removed."""

    def __init__(self, backs: Backs) -> None:
        self._backs = backs
        self._names: set[str] = set()
        self.answer_seconds: Mapping[str, float] = {}
        """By name of the back, measured by the engine."""

    def collect(self) -> Iterator[Metric]:
        """The current values."""
        connected: Counter[str] = Counter()
        sums: dict[str, Counter[str]] = {name: Counter() for name in _COUNTERS}
        answers: dict[str, float] = {}
        for back in self._backs.describe():
            label = self._label(back["name"])
            connected[label] += 1
            for name, value in _counts(back).items():
                sums[name][label] += value
            if (seconds := self.answer_seconds.get(back["name"])) is not None:
                answers[label] = max(seconds, answers.get(label, 0.0))
        yield _gauge("connected", "Connected backs", dict(connected))
        yield _gauge(
            "answer_seconds",
            "From a commit to the back's first new token: network round trip and draft step",
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


def _counts(back: Mapping[str, Any]) -> dict[str, int]:
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
