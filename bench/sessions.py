"""`python -m bench sessions`: recorded sessions of Claude Code and Codex, replayed through their own APIs.

    python -m bench sessions --peer llama-server=PATH
    python -m bench sessions --model grown.gguf --n-ctx 16384 --characters 40000

Every server is asked each turn with what was recorded before it, and has to answer what was recorded: a
grammar of token ids leaves no other choice, so a small model may stand for a big one. The servers take turns.
llama-server has its prompt cache, and once more with drafts of `ngram-mod`; its Messages API passes no
grammar on, so that sessions of Claude Code reach it as chat completions.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench import models, options, peer, report
from bench.processes import CALIBRATION_SECONDS, start_lead
from lead.benchmark.measured_answer import StreamedAnswer, client, stream
from lead.benchmark.questions import recorded_sessions
from shared.cpus import parse_cpus
from shared.errors import ConfigError
from shared.exits import say
from shared.llama.vocabulary import Vocabulary

PLAIN, DRAFTED, PEER = "lead without drafts", "lead", "llama-server, ngram-mod"
_COLUMNS = {
    "way": ("", ""),
    "tokens_per_second": ("tokens/s", ".1f"),
    "speedup": ("over the lead's without drafts", ".2f"),
    "first_ms": ("first token: turn 1, ms", ".0f"),
    "later_first_ms": ("later turns", ".0f"),
    "later_over_peer": ("over llama-server's", ".2f"),
    "n_read_again": ("read in later turns", "d"),
}
_QUICK = {"sessions": 1, "turns": 3, "characters": 4000}
_Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """What was said until then, and the answer that was recorded. number: in its session, from 0."""

    session: int
    number: int
    source: str
    messages: _Messages
    answer: str

    @property
    def n_characters(self) -> int:
        return len(self.answer) + sum(len(message["content"]) for message in self.messages)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A turn in one way; n_tokens: of the answer, which was forced."""

    way: str
    turn: Turn
    answer: StreamedAnswer
    n_tokens: int


@dataclass(frozen=True, slots=True)
class _Api:
    """path: of the requests. body: from messages and the most tokens. flatten: events to those of chats."""

    path: str
    body: Callable[[_Messages, int], dict[str, Any]]
    flatten: Callable[[Mapping[str, Any]], Mapping[str, Any]]


def main(arguments: Sequence[str]) -> None:
    """Print a table, and one line of JSON. Raises ConfigError."""
    settings = _parse(arguments)
    turns = list(chosen_turns(recorded_sessions(), settings.sessions, settings.turns, settings.characters))
    if not turns:
        raise ConfigError("no session is as short as that")
    model = models.with_context(settings.model or models.target("0.4G:f16"), settings.n_ctx)
    vocabulary = Vocabulary.load(model)
    with ExitStack() as stack:
        servers = _start(stack, model, settings)
        replayed = []
        for turn in turns:
            tokens = vocabulary.tokenize(turn.answer, add_special=False, parse_special=False)
            for way in list(servers) if turn.number % 2 else reversed(list(servers)):
                answer = ask(servers[way], turn, tokens, is_lead=way in {PLAIN, DRAFTED})
                replayed.append(Replayed(way, turn, answer, len(tokens)))
                say(f"{turn.source} {turn.number + 1}, {way}: {_record(replayed[-1])}")
    rows = summarize(replayed, list(servers))
    report.show(
        f"{model.name}, {len(turns)} turns of {len({turn.session for turn in turns})} sessions",
        rows,
        _COLUMNS,
    )
    report.finish("sessions", rows, settings, turns=[_record(each) for each in replayed])


def chosen_turns(
    sessions: Sequence[Mapping[str, Any]], n_each: int, n_turns: int, n_characters: int
) -> Iterator[Turn]:
    """The first `n_turns` turns of the longest `n_each` sessions of each source within `n_characters`."""
    by_source: dict[str, list[list[Turn]]] = {}
    # Most are recorded at several lengths.
    longest = {
        each["source_session_id"]: each for each in sorted(sessions, key=lambda each: each["n_messages"])
    }
    for number, session in enumerate(longest.values()):
        turns = [each for each in _turns(number, session) if each.number < n_turns]
        if turns[-1].n_characters <= n_characters:
            by_source.setdefault(session["source"], []).append(turns)
    for _, found in sorted(by_source.items()):
        found.sort(key=lambda turns: -turns[-1].n_characters)
        for turns in found[:n_each]:
            yield from turns


def _turns(number: int, session: Mapping[str, Any]) -> Iterator[Turn]:
    recorded = [*session["messages"], {"role": "assistant", "content": session["reference_response"]}]
    answers = [i for i, message in enumerate(recorded) if message["role"] == "assistant"]
    for turn, i in enumerate(answers):
        yield Turn(number, turn, session["source"], recorded[:i], recorded[i]["content"])


def ask(http: httpx.Client, turn: Turn, tokens: Sequence[int], *, is_lead: bool) -> StreamedAnswer:
    """The answer consists of `tokens`; raises ConfigError if it does not."""
    api = _APIS[turn.source] if is_lead or turn.source != "claude-code" else _CHAT
    body = api.body(turn.messages, len(tokens) + 1) | {
        "stream": True,
        "temperature": 0,
        "grammar": f"root ::= {' '.join(f'<[{token}]>' for token in tokens)}",
    }
    answer = stream(http, api.path, body, api.flatten)
    if answer.text.strip() != turn.answer.strip():
        raise ConfigError(f"{http.base_url} answered other than what was recorded: {answer.text[:200]!r}")
    return answer


def summarize(replayed: Sequence[Replayed], ways: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each way. Ratios of first tokens are medians of those of each turn."""
    later = {
        way: {each.turn: each.answer for each in replayed if each.way == way and each.turn.number}
        for way in ways
    }
    rates = {way: _rate([each for each in replayed if each.way == way]) for way in ways}
    rows = []
    for way in ways:
        first = [each.answer for each in replayed if each.way == way and not each.turn.number]
        ratios = [
            (answer.to_first or 0) / (later[PEER][turn].to_first or 1)
            for turn, answer in later[way].items()
            if PEER in later
        ]
        rows.append(
            {
                "way": way,
                "tokens_per_second": rates[way],
                "speedup": rates[way] / rates[PLAIN],
                "first_ms": _median_ms(first),
                "later_first_ms": _median_ms(list(later[way].values())),
                "later_over_peer": statistics.median(ratios) if ratios else None,
                "n_read_again": sum(answer.n_read for answer in later[way].values()),
            }
        )
    return rows


def _rate(replayed: Sequence[Replayed]) -> float:
    """Tokens after the first text of each answer, divided by the time they took."""
    seconds = sum(sum(each.answer.gaps) for each in replayed)
    return sum(each.n_tokens - 1 for each in replayed) / seconds if seconds else 0.0


def _median_ms(answers: Sequence[StreamedAnswer]) -> float | None:
    return 1000 * statistics.median(each.to_first or 0 for each in answers) if answers else None


def _record(each: Replayed) -> dict[str, Any]:
    turn, answer = each.turn, each.answer
    return {
        "way": each.way,
        "session": turn.session,
        "source": turn.source,
        "turn": turn.number,
        "first_ms": 1000 * (answer.to_first or 0),
        "n_read": answer.n_read,
        "n_tokens": each.n_tokens,
        "seconds": sum(answer.gaps),
    }


def _start(stack: ExitStack, model: Path, settings: argparse.Namespace) -> dict[str, httpx.Client]:
    """A server for each way, on the same cores; who waits for its turn takes no time."""
    cores = options.cores(settings)
    n_threads = str(len(parse_cpus(cores.lead)))
    shared = ("--model", str(model), "--cpus", cores.lead, "--threads", n_threads, "--parallel", "1")
    servers = {}
    for way, policy in ((PLAIN, "off"), (DRAFTED, "adaptive")):
        lead, url = start_lead(*shared, "--ctx-size", str(settings.n_ctx), "--policy", policy)
        stack.enter_context(lead)
        servers[way] = stack.enter_context(client(url))
    if settings.peer:
        # The option that is given last counts: with the cache that it has by default.
        cached = ("--cache-ram", "8192")
        for way, extra in (("llama-server", ()), (PEER, ("--spec-type", "ngram-mod"))):
            peer_options = [*cached, *extra]
            started = peer.Peer(
                settings.peer, model, cores.lead, n_ctx_slot=settings.n_ctx, extra=peer_options
            )
            servers[way] = stack.enter_context(started).http
    time.sleep(CALIBRATION_SECONDS)
    return servers


# The APIs


def _of_responses(event: Mapping[str, Any]) -> Mapping[str, Any]:
    match event.get("type"):
        case "response.output_text.delta":
            return {"choices": [{"delta": {"content": event["delta"]}}]}
        case "response.completed":
            usage = event["response"]["usage"]
            cached = (usage.get("input_tokens_details") or {}).get("cached_tokens", 0)
            return _usage(usage["input_tokens"], cached, usage["output_tokens"])
        case "error" | "response.failed":
            return {"error": event}
    return {}


def _of_messages(event: Mapping[str, Any]) -> Mapping[str, Any]:
    match event.get("type"):
        case "content_block_delta":
            return {"choices": [{"delta": {"content": event["delta"].get("text", "")}}]}
        case "message_start":
            usage = event["message"]["usage"]
            cached = usage.get("cache_read_input_tokens") or 0
            return _usage(usage["input_tokens"] + cached, cached, 0)
        case "error":
            return {"error": event["error"]}
    return {}


def _usage(n_prompt: int, n_cached: int, n_generated: int) -> dict[str, Any]:
    details = {"cached_tokens": n_cached}
    usage = {"completion_tokens": n_generated, "prompt_tokens": n_prompt, "prompt_tokens_details": details}
    return {"usage": usage}


_CHAT = _Api(
    "/v1/chat/completions",
    lambda messages, n: {"messages": messages, "max_tokens": n, "stream_options": {"include_usage": True}},
    lambda event: event,
)
_APIS = {
    "codex": _Api(
        "/v1/responses", lambda messages, n: {"input": messages, "max_output_tokens": n}, _of_responses
    ),
    "claude-code": _Api(
        "/v1/messages", lambda messages, n: {"messages": messages, "max_tokens": n}, _of_messages
    ),
}


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench sessions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    report.add_options(parser)
    parser.add_argument("--model", type=Path, help="a GGUF file (default: the demo's target)")
    parser.add_argument("--n-ctx", type=int, default=16384, help="tokens that a session may have")
    parser.add_argument("--sessions", type=int, default=2, help="of each of Claude Code and Codex")
    parser.add_argument("--turns", type=int, default=20, help="of a session, from the first one on")
    parser.add_argument("--characters", type=int, default=32000, help="of these turns, at most")
    options.add_core_options(parser)
    parser.add_argument(
        "--peer", type=peer.find, metavar="llama-server=PATH", help="also measure this server"
    )
    return report.parse(parser, arguments, _QUICK)
