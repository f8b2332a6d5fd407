"""Metrics of sequences: totals and latencies, counted while they run."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from lead.engine.commands import OWN_SOURCES
from lead.engine.events import Committed
from lead.engine_client.sequences import LiveSequence

N_POSITIONS = 32
"""The deepest draft that is verified; each position is a time series."""

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_STEP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)


class SequenceMetrics:
    """An observer of `Sequences`. A step costs a few additions and one histogram observation per token."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.n_tokens_max = 0
        """The number of tokens in the longest text so far."""
        self._n_after_first = 0  # generated tokens without those of each answer's first step

        def counter(name: str, text: str) -> Counter:
            return Counter(f"llamacpp:{name}", text, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"llama_duo:{name}_seconds", text, buckets=buckets, registry=registry)

        # the names of llama-server where it counts the same, so that its dashboards work
        self._prompt_tokens = counter(
            "prompt_tokens", "Number of prompt tokens processed, excluding cached tokens"
        )
        self._cached_tokens = counter("prompt_tokens_cached", "Number of prompt tokens reused from the cache")
        self._prompt_seconds = counter("prompt_seconds", "Total time spent processing prompts")
        self._tokens = counter("tokens_predicted", "Number of generated tokens")
        self._seconds = counter("tokens_predicted_seconds", "Total time spent generating tokens")
        self._drafts = counter("spec_decode_num_drafts", "Steps with draft tokens to verify")
        self._draft_tokens = counter("spec_decode_num_draft_tokens", "Draft tokens verified")
        self._accepted = counter("spec_decode_num_accepted_tokens", "Draft tokens accepted")
        by_position = Counter(
            "llamacpp:spec_decode_num_accepted_tokens_per_pos",
            "Accepted tokens by their position in the draft",
            ["position"],
            registry=registry,
        )
        self._accepted_at = [by_position.labels(str(i)) for i in range(N_POSITIONS)]
        self._drafted_by = self._by_source("draft", "Verified draft tokens, except of backs", registry)
        self._accepted_by = self._by_source("accepted", "Accepted draft tokens, except of backs", registry)
        ended = Counter("llama_duo:requests", "Ended requests by reason", ["reason"], registry=registry)
        self._ended = {reason: ended.labels(reason) for reason in ("stop", "length", "failed")}
        # vLLM's names, but for the prefix
        self._queue = histogram("request_queue_time", "Time from a request to its slot", _SECONDS)
        self._first = histogram("time_to_first_token", "Time from a request to its first token", _SECONDS)
        self._between = histogram(
            "inter_token_latency",
            "Time between tokens; the tokens of a step share its time equally",
            _STEP_SECONDS,
        )
        self._whole = histogram("e2e_request_latency", "Time from a request to its last token", _SECONDS)

    @property
    def prompts(self) -> tuple[float, float]:
        """(tokens, seconds) of prompts so far."""
        return _value(self._prompt_tokens), _value(self._prompt_seconds)

    @property
    def generation(self) -> tuple[float, float]:
        """(tokens, seconds) of generation so far, without the first step of each answer.

        The time of the first step counts for the prompt.
        """
        return self._n_after_first, _value(self._seconds)

    def on_step(self, sequence: LiveSequence, step: Committed) -> None:
        n, seconds = len(step.tokens), sequence.step_seconds
        self._tokens.inc(n)
        if seconds is None:
            self._count_prompt(sequence)
        else:
            self._n_after_first += n
            self._seconds.inc(seconds)
            for _ in step.tokens:
                self._between.observe(seconds / n)
        if step.n_drafted:
            self._drafts.inc()
            self._draft_tokens.inc(step.n_drafted)
            self._accepted.inc(step.n_accepted)
            for i in range(min(step.n_accepted, N_POSITIONS)):
                self._accepted_at[i].inc()
            for i, source in enumerate(step.sources):
                if source in OWN_SOURCES:
                    self._drafted_by[source].inc()
                    self._accepted_by[source].inc(i < step.n_accepted)

    @staticmethod
    def _by_source(name: str, text: str, registry: CollectorRegistry) -> dict[str, Counter]:
        counter = Counter(f"llama_duo:source_{name}_tokens", text, ["source"], registry=registry)
        return {source: counter.labels(source) for source in sorted(OWN_SOURCES)}

    def on_end(self, sequence: LiveSequence) -> None:
        self.n_tokens_max = max(self.n_tokens_max, sequence.n_tokens)
        if sequence.last_token_at is not None:
            self._whole.observe(sequence.last_token_at - sequence.created_at)
        self._ended[sequence.finish_reason or "failed"].inc()

    def _count_prompt(self, sequence: LiveSequence) -> None:
        started = sequence.created_at if sequence.started_at is None else sequence.started_at
        first = started if sequence.first_token_at is None else sequence.first_token_at
        self._prompt_tokens.inc(max(0, sequence.n_prompt - sequence.n_cached))
        self._cached_tokens.inc(sequence.n_cached)
        self._prompt_seconds.inc(first - started)
        self._queue.observe(started - sequence.created_at)
        self._first.observe(first - sequence.created_at)


def _value(counter: Counter) -> float:
    return next(s.value for metric in counter.collect() for s in metric.samples if s.name.endswith("_total"))
