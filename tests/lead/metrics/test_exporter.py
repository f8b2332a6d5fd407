import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lead.engine.events import Committed, Finished, Started
from lead.engine_client.occupancy import Occupancy
from lead.metrics.exporter import MAX_NAMES, OTHERS, MetricsExporter
from shared.protocol import Draft
from tests.lead.serving import hello
from tests.toy_engine import submit


class Watched:
    """A lead with metrics. Its sequences have their own clock."""

    def __init__(self, lead):
        self.lead = lead
        lead.sequences._clock = lambda: 10.0
        self.metrics = MetricsExporter(lead.sequences, lead.backs)

    def values(self, report=None):
        """The values by name, or by (name, its only label)."""
        text = self.metrics.export(report).decode()
        return {
            (sample.name, *sample.labels.values()) if sample.labels else sample.name: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def begin(self, n_prompt=5, n_cached=2, at=11.0):
        sequence = self.lead.sequences.create(submit(tokens=[3] * n_prompt))
        self.lead.sequences.apply(Started(sequence=sequence.id, n_cached=n_cached), at)
        return sequence

    def step(self, sequence, n, at, **figures):
        step = Committed(sequence=sequence.id, start=len(sequence.tokens), tokens=[7] * n, **figures)
        self.lead.sequences.apply(step, at)

    def join(self, name):
        return self.lead.backs.join(
            hello(self.lead, name=name), self.lead.vocabulary.identify(), "websocket"
        )[0]


@pytest.fixture
def watched(lead):
    return Watched(lead)


def test_prompts_are_counted_with_the_first_token(watched):
    sequence = watched.begin(n_prompt=5, n_cached=2, at=11.0)
    assert watched.values()["llamacpp:prompt_tokens_total"] == 0
    watched.step(sequence, 1, 13.0)
    values = watched.values()
    assert values["llamacpp:prompt_tokens_total"] == 3
    assert values["llamacpp:prompt_tokens_cached_total"] == 2
    assert values["llamacpp:prompt_seconds_total"] == 2
    assert values["llama_duo:request_queue_time_seconds_sum"] == 1
    assert values["llama_duo:time_to_first_token_seconds_sum"] == 3


def test_tokens_of_one_step_share_the_time_between(watched):
    sequence = watched.begin()
    watched.step(sequence, 1, 13.0)
    watched.step(sequence, 4, 13.2)
    values = watched.values()
    assert values["llamacpp:tokens_predicted_total"] == 5
    assert math.isclose(values["llamacpp:tokens_predicted_seconds_total"], 0.2)
    assert values["llama_duo:inter_token_latency_seconds_count"] == 4
    assert math.isclose(values["llama_duo:inter_token_latency_seconds_sum"], 0.2)


def test_drafts_are_counted_by_position(watched):
    sequence = watched.begin()
    watched.step(sequence, 3, 13.0, n_accepted=2, rejected=[9])
    watched.step(sequence, 1, 14.0, n_accepted=0, rejected=[9])
    watched.step(sequence, 1, 15.0)
    values = watched.values()
    assert values["llamacpp:spec_decode_num_drafts_total"] == 2
    assert values["llamacpp:spec_decode_num_draft_tokens_total"] == 4
    assert values["llamacpp:spec_decode_num_accepted_tokens_total"] == 2
    positions = [values["llamacpp:spec_decode_num_accepted_tokens_per_pos_total", str(i)] for i in range(3)]
    assert positions == [1, 1, 0]


def test_drafts_of_the_leads_own_sources_are_counted_by_source(watched):
    sequence = watched.begin()
    watched.step(sequence, 3, 13.0, n_accepted=2, rejected=[9], sources=["suffix", "desk", "suffix"])
    values = watched.values()
    assert values["llama_duo:source_draft_tokens_total", "suffix"] == 2
    assert values["llama_duo:source_accepted_tokens_total", "suffix"] == 1
    assert values["llama_duo:source_draft_tokens_total", "ngram"] == 0
    assert ("llama_duo:source_draft_tokens_total", "desk") not in values


def test_what_is_free_and_in_use_is_shown_once_it_is_known(watched):
    assert "llama_duo:slots_free" not in watched.values()
    text = watched.metrics.export(None, Occupancy(3, 0, 60, 0, 4, 240)).decode()
    assert "llama_duo:slots_free 1.0" in text
    assert "llamacpp:kv_cache_usage_ratio 0.25" in text


def test_a_request_is_counted_when_it_ends(watched):
    sequence = watched.begin()
    watched.step(sequence, 1, 14.0)
    watched.lead.sequences.apply(Finished(sequence=sequence.id, reason="length"), 14.0)
    values = watched.values()
    assert values["llama_duo:requests_total", "length"] == 1
    assert values["llama_duo:e2e_request_latency_seconds_sum"] == 4
    assert values["llamacpp:n_tokens_max_total"] == 6, "so this parser names every counter"


def test_a_failed_request_is_told_from_one_that_ended(watched):
    watched.begin()
    watched.lead.sequences.fail_all("the engine has died")
    values = watched.values()
    assert values["llama_duo:requests_total", "failed"] == 1
    assert values["llama_duo:e2e_request_latency_seconds_count"] == 0, "no client received anything"


def test_running_and_waiting_requests_are_told_apart(watched):
    watched.begin()
    watched.lead.sequences.create(submit(tokens=[1]))
    values = watched.values()
    assert (values["llamacpp:requests_processing"], values["llamacpp:requests_deferred"]) == (1, 1)


def test_rates_are_those_since_the_last_look(watched):
    sequence = watched.begin(n_prompt=5, n_cached=1, at=11.0)
    watched.step(sequence, 1, 13.0)
    watched.step(sequence, 5, 15.0)
    values = watched.values()
    assert values["llamacpp:prompt_tokens_seconds"] == 2
    assert values["llamacpp:predicted_tokens_seconds"] == 2.5, "the first step is the prompt's"
    assert watched.values()["llamacpp:predicted_tokens_seconds"] == 0


def test_drafts_accepted_with_the_prompt_do_not_raise_the_rate(watched):
    sequence = watched.begin(n_prompt=5, n_cached=4, at=11.0)
    watched.step(sequence, 17, 13.0)
    watched.step(sequence, 5, 15.0)
    assert watched.values()["llamacpp:predicted_tokens_seconds"] == 2.5


def test_decodes_are_what_the_engine_says_and_stay_when_it_is_busy(watched):
    report = {"n_steps": 10, "depths": {"0": 12, "3": 8}, "sources": {}}
    assert watched.values(report)["llamacpp:n_decode_total"] == 10
    values = watched.values(None)
    assert (values["llamacpp:n_decode_total"], values["llamacpp:n_busy_slots_per_decode"]) == (10, 2)


def test_a_backs_figures_end_when_it_leaves(watched):
    back = watched.join("desk")
    back.stats.n_used_tokens, back.stats.n_accepted_tokens = 9, 7
    values = watched.values()
    assert values["llama_duo:back_connected", "desk"] == 1
    assert values["llama_duo:back_wasted_tokens_total", "desk"] == 2
    watched.lead.backs.leave(back)
    assert not [key for key in watched.values() if key[1:] == ("desk",)]


def test_how_long_a_back_takes_to_answer_is_shown_but_not_for_the_leads_own_sources(watched):
    watched.join("desk")
    sources = {"desk": {"first_draft_ms": 20.0}, "ngram": {"first_draft_ms": 1.0}, "away": {}}
    values = watched.values({"sources": sources})
    assert values["llama_duo:back_answer_seconds", "desk"] == 0.02
    assert ("llama_duo:back_answer_seconds", "ngram") not in values


def test_every_figure_of_a_back_is_shown(watched):
    back = watched.join("desk")
    numbers = {name: i for i, name in enumerate(type(back.stats).__slots__, 1)}
    for name, value in numbers.items():
        setattr(back.stats, name, value)
    values = watched.values()
    shown = {name: value for (name, *labels), value in _labeled(values) if labels == ["desk"]}
    for name, value in numbers.items():
        as_shown = name.removeprefix("n_").replace("used", "verified")
        assert shown[f"llama_duo:back_{as_shown}_total"] == value


def _labeled(values):
    return [(key, value) for key, value in values.items() if isinstance(key, tuple)]


def test_names_of_backs_cannot_grow_without_end(watched):
    for i in range(MAX_NAMES + 2):
        back = watched.join(f"b{i}")
        labels = {key[1] for key in watched.values() if key[0] == "llama_duo:back_connected"}
        watched.lead.backs.leave(back)
    assert labels == {OTHERS}


def test_draft_messages_reach_a_backs_counters(watched):
    back = watched.join("desk")
    sequence = watched.begin()
    watched.lead.backs.updates(back)
    watched.lead.backs.take_draft(back, draft_for(sequence))
    assert watched.lead.engine.posted[0].source == "desk"
    assert watched.values()["llama_duo:back_draft_tokens_total", "desk"] == 2


def draft_for(sequence):
    return Draft(sequence=sequence.id, base=len(sequence.tokens), tokens=[1, 2])


def test_what_the_engine_drafts_itself_is_counted(watched):
    values = watched.values({"mtp": {"token_ms": 1.5, "seconds": 2.5, "n_tokens": 40}})
    assert values["llama_duo:inline_draft_seconds_total", "mtp"] == 2.5
    assert values["llama_duo:inline_draft_tokens_total", "mtp"] == 40
