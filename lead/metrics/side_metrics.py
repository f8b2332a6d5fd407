"""Metrics of models that make vectors of texts, or rank them."""

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lead.http.side_models import SideModel

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def side_metrics(models: Sequence[SideModel]) -> Iterator[Metric]:
    """Yield the metrics of each model."""
    if not models:
        return
    texts = CounterMetricFamily(
        "llama_duo:embedding_texts", "Number of texts embedded or reranked", labels=["model"]
    )
    tokens = CounterMetricFamily(
        "llama_duo:embedding_tokens", "Number of tokens in embedded or reranked texts", labels=["model"]
    )
    seconds = CounterMetricFamily(
        "llama_duo:embedding_seconds", "Total time spent embedding or reranking texts", labels=["model"]
    )
    waiting = GaugeMetricFamily(
        "llama_duo:embedding_texts_waiting",
        "Number of texts that wait to be embedded or reranked",
        labels=["model"],
    )
    for model in models:
        texts.add_metric([model.name], model.work.n_texts)
        tokens.add_metric([model.name], model.work.n_tokens)
        seconds.add_metric([model.name], model.work.seconds)
        waiting.add_metric([model.name], model.work.n_waiting)
    yield from (texts, tokens, seconds, waiting)


class _SideCollector(Collector):
    def __init__(self, models: Sequence[SideModel]) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        return side_metrics(self._models)


def export_sides(models: Sequence[SideModel]) -> bytes:
    """Return the metrics of a lead without a text model, in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_SideCollector(models))
    return generate_latest(registry)
