"""The dashboard uses only metrics that /metrics has."""

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from lead.metrics.exporter import MetricsExporter
from tests.lead.serving import hello

GRAFANA = Path(__file__).parents[3] / "docker" / "grafana"
DASHBOARD = json.loads((GRAFANA / "llama-duo.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
VARIABLES = [variable["query"] for variable in DASHBOARD["templating"]["list"]]


@pytest.fixture
def exposed(lead):
    lead.backs.join(hello(lead), lead.vocabulary.identify(), "websocket")
    text = (
        MetricsExporter(lead.sequences, lead.backs)
        .export({"sources": {"desk": {"first_draft_ms": 1.0}}})
        .decode()
    )
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_metric_and_label_of_a_query_is_exposed(exposed):
    for query in QUERIES + VARIABLES[1:]:
        names = set(re.findall(r"llama(?:cpp|_duo):\w+", query))
        assert names, query
        assert names - exposed.keys() == set(), query
        for label in re.findall(r"(?:sum|max) by \((\w+)\)", query):
            assert label in exposed[names.pop()], query


def test_prometheus_is_told_where_a_lead_listens():
    (scrape,) = yaml.safe_load((GRAFANA / "prometheus.yml").read_text())["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": ["localhost:5555"]}]
