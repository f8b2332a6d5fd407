"""All metrics of a lead in Prometheus' text format. Metrics that llama-server also has use its names."""

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lead.backs.registry import Backs
from lead.engine.commands import OWN_SOURCES
from lead.generation.occupancy import Occupancy
from lead.generation.sequences import Sequences, Status
from lead.generation.submissions import Submissions
from lead.metrics.back_metrics import BackMetrics
from lead.metrics.sequence_metrics import SequenceMetrics

# Without a second series for each counter with its creation time.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types here

_DRAFTING = {
    "seconds": "Seconds for which the engine has drafted itself, with a draft model or the model's own heads",
    "n_tokens": "Draft tokens that the engine has made itself",
}

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsExporter(Collector):
    """Counts from its creation on."""

    def __init__(self, sequences: Sequences, submissions: Submissions, backs: Backs) -> None:
        self._sequences = sequences
        self._submissions = submissions
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
        sequences.observe(self._of_sequences)

    def export(self, report: Mapping[str, Any] | None, occupancy: Occupancy | None = None) -> bytes:
        """Prometheus' text format.

        `report` is `SpeculationManager.describe`'s, if it could be had; `occupancy` is None while it is not
        known.
        """
        self._occupancy = occupancy
        if report is not None:
            self._learn(report)
        text = generate_latest(self._registry)
        # llama-server calls this gauge a counter, and dashboards made for it expect that.
        return text.replace(b"# TYPE llamacpp:n_tokens_max gauge", b"# TYPE llamacpp:n_tokens_max counter")

    def collect(self) -> Iterator[Metric]:
        """The metrics that are read from the current state."""
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
        waiting = sum(sequence.status is Status.QUEUED for sequence in self._sequences)
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
            value=self._submissions.n_deaths,
        )
        yield CounterMetricFamily(
            "llama_duo:requests_resumed",
            "Running requests that went on in another engine process, each time",
            value=self._submissions.n_resumed,
        )
        yield from self._drafting()
        if self._occupancy:
            yield from _gauges(self._occupancy)
        yield from self._rates()

    def _drafting(self) -> Iterator[Metric]:
        """Of the draft model or the heads inside the engine; nothing without."""
        for source, drafting in self._drafting_inside.items():
            for name, text in _DRAFTING.items():
                metric = CounterMetricFamily(
                    f"llama_duo:inline_draft_{name.removeprefix('n_')}", text, labels=["source"]
                )
                metric.add_metric([source], drafting[name])
                yield metric

    def _rates(self) -> Iterator[Metric]:
        """Since the last export, as llama-server has them; 0 if nothing happened since."""
        now = (self._of_sequences.prompts, self._of_sequences.generation)
        names = ("llamacpp:prompt_tokens_seconds", "llamacpp:predicted_tokens_seconds")
        texts = ("Average prompt throughput in tokens/s", "Average generation throughput in tokens/s")
        for name, text, before, after in zip(names, texts, self._shown, now, strict=True):
            seconds = after[1] - before[1]
            rate = (after[0] - before[0]) / seconds if seconds > 0 else 0.0
            yield GaugeMetricFamily(name, text, value=rate)
        self._shown = now

    def _learn(self, report: Mapping[str, Any]) -> None:
        """A restarted engine counts from zero; Prometheus handles such resets."""
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
    yield GaugeMetricFamily(
        "llama_duo:slots_free", "Requests that would get a slot at once", value=occupancy.n_free_slots
    )
