"""All metrics of a lead in Prometheus' text format. Metrics have the names of llama-server if it has them,
too.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lead.backs.registry import Backs
from lead.engine.commands import OWN_SOURCES
from lead.engine_client.occupancy import Occupancy
from lead.engine_client.sequences import Sequences
from lead.http.side_models import SideModel
from lead.metrics.sequence_metrics import SequenceMetrics
from lead.metrics.side_metrics import CONTENT_TYPE, side_metrics

# Without a second series for each counter with its creation time.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types here

_DRAFTING = {
    "seconds": "Total time that the engine spent drafting, with a draft model or the model's own heads",
    "n_tokens": "Draft tokens made by the engine",
}


class MetricsExporter(Collector):
    """The lead's metrics for Prometheus."""

    content_type = CONTENT_TYPE

    def __init__(self, sequences: Sequences, backs: Backs) -> None:
        self._sequences = sequences
        self._registry = CollectorRegistry()
        self._of_sequences = SequenceMetrics(self._registry)
        self._of_backs = BackMetrics(backs)
        self._registry.register(self)
        self._registry.register(self._of_backs)
        self._shown = ((0.0, 0.0), (0.0, 0.0))
        self._n_decodes = 0.0
        self._n_busy = 0.0
        self._drafting_inside: dict[str, dict[str, float]] = {}
        self._occupancy: Occupancy | None = None
        self._others: Sequence[SideModel] = ()
        sequences.observe(self._of_sequences)

    def export(
        self,
        report: Mapping[str, Any] | None,
        occupancy: Occupancy | None = None,
        others: Sequence[SideModel] = (),
    ) -> bytes:
        """Return the metrics in Prometheus' text format.

        report: the result of `SpeculationManager.describe`; None if it is not available. occupancy: the
        occupancy of slots and KV cache; None if it is unknown. others: the models beside the text model.
        """
        self._occupancy, self._others = occupancy, others
        if report is not None:
            self._learn(report)
        text = generate_latest(self._registry)
        # llama-server calls this gauge a counter, and dashboards made for it expect that.
        return text.replace(b"# TYPE llamacpp:n_tokens_max gauge", b"# TYPE llamacpp:n_tokens_max counter")

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "llamacpp:n_decode", "Total number of llama_decode() calls", value=self._n_decodes
        )
        yield GaugeMetricFamily(
            "llamacpp:n_busy_slots_per_decode",
            "Average number of slots that generate per llama_decode() call",
            value=self._n_busy / max(self._n_decodes, 1.0),
        )
        yield GaugeMetricFamily(
            "llamacpp:n_tokens_max",
            "Length of the longest sequence, including its prompt",
            value=self._of_sequences.n_tokens_max,
        )
        waiting = sum(sequence.is_waiting for sequence in self._sequences)  # now, not at the last event
        yield GaugeMetricFamily(
            "llamacpp:requests_processing",
            "Number of requests processing",
            value=len(self._sequences) - waiting,
        )
        yield GaugeMetricFamily(
            "llamacpp:requests_deferred", "Number of requests that wait for a slot", value=waiting
        )
        yield CounterMetricFamily(
            "llama_duo:engine_deaths",
            "Engine processes that died and were started again",
            value=self._sequences.n_deaths,
        )
        yield CounterMetricFamily(
            "llama_duo:requests_resumed",
            "Resumptions of running requests in a new engine process",
            value=self._sequences.n_resumed,
        )
        yield from self._drafting()
        if self._occupancy:
            yield from _gauges(self._occupancy)
        yield from self._rates()
        yield from side_metrics(self._others)

    def _drafting(self) -> Iterator[Metric]:
        """Yield the counters of the draft model or the heads inside the engine, if there are any."""
        for source, drafting in self._drafting_inside.items():
            for name, text in _DRAFTING.items():
                metric = CounterMetricFamily(
                    f"llama_duo:inline_draft_{name.removeprefix('n_')}", text, labels=["source"]
                )
                metric.add_metric([source], drafting[name])
                yield metric

    def _rates(self) -> Iterator[Metric]:
        """Yield the rates since the last export, as llama-server does; 0 if there was no work."""
        now = (self._of_sequences.prompts, self._of_sequences.generation)
        names = ("llamacpp:prompt_tokens_seconds", "llamacpp:predicted_tokens_seconds")
        texts = ("Average prompt throughput in tokens/s", "Average generation throughput in tokens/s")
        for name, text, before, after in zip(names, texts, self._shown, now, strict=True):
            seconds = after[1] - before[1]
            rate = (after[0] - before[0]) / seconds if seconds > 0 else 0.0
            yield GaugeMetricFamily(name, text, value=rate)
        self._shown = now

    def _learn(self, report: Mapping[str, Any]) -> None:
        """Take over the counters in `report`.

        A restarted engine counts from zero; Prometheus handles such resets.
        """
        self._n_decodes = report.get("n_steps", 0)
        self._n_busy = sum(report.get("depths", {}).values())
        self._drafting_inside = {source: report[source] for source in OWN_SOURCES if source in report}
        sources = report.get("sources", {})
        self._of_backs.answer_seconds = {
            name: source["first_draft_ms"] / 1000
            for name, source in sources.items()
            if name not in OWN_SOURCES and source.get("first_draft_ms") is not None
        }


def _gauges(occupancy: Occupancy) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "llamacpp:kv_cache_usage_ratio",
        "Share of the KV cache that running requests fill; 1: all of it",
        value=occupancy.kv_usage,
    )
    yield GaugeMetricFamily("llama_duo:slots_free", "Free slots", value=occupancy.n_free_slots)


MAX_NAMES = 256
"""The maximum number of backs' names with metrics of their own; other backs are summed under OTHERS. Backs
choose their names, and each name is a set of time series.
"""
OTHERS = "others"

_PREFIX = "llama_duo:back_"
_COUNTERS = {
    "drafts": "Drafts received",
    "draft_tokens": "Tokens in drafts; a draft repeats the unverified tokens of the previous draft",
    "verified_tokens": "Draft tokens verified in a step",
    "accepted_tokens": "Verified tokens that were accepted",
    "wasted_tokens": "Verified tokens that were rejected",
    "stale_drafts": "Drafts that arrived too late to be useful",
    "invalid_drafts": "Drafts that violated the protocol",
    "excess_drafts": "Drafts above the allowed rate",
}


class BackMetrics(Collector):
    """A series for each connected back; the series of a disconnected back are removed."""

    def __init__(self, backs: Backs) -> None:
        self._backs = backs
        self._names: set[str] = set()
        self.answer_seconds: Mapping[str, float] = {}
        """The answer times measured by the engine, by name of the back."""

    def collect(self) -> Iterator[Metric]:
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
            "Time from a commit to the back's first new token: network round trip and draft step",
            answers,
        )
        for name, text in _COUNTERS.items():
            family = CounterMetricFamily(_PREFIX + name, text, labels=["back"])
            for label, total in sums[name].items():
                family.add_metric([label], total)
            yield family

    def _label(self, name: str) -> str:
        if name not in self._names and len(self._names) >= MAX_NAMES:
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
