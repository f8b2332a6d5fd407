"""`make demo`: what the project does, shown in two minutes on this machine.

The lead gets all cores but one, the back the last one: they stand for two computers. Speeds are measured in
the usual, fastest mode, texts are compared in exact mode: in the usual mode the last bits of logits depend on
the width of a batch.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.foreground import run_in_foreground
from bench.processes import ProgramError, split_cores, start_back, start_lead
from chat.answer import ChatAnswer, GenerationStats
from chat.client import LeadClient
from chat.render import Screen
from chat.report import figures
from lead.settings.lead_settings import LeadSettings
from shared import cpus
from shared.errors import ConfigError
from shared.logs import configure_logging

QUESTIONS = (
    "Tell me a story about a fox named Zorvi who gets lost, with a red umbrella.",
    "What is speculative decoding?",
    "Write a short story about a baker who finds a mysterious letter.",
)
_FORGETFUL = ("--suffix-memory", "0")
"""The same questions are asked twice: the second time is to show what a back is worth."""
_TIMEOUT_S = 300.0
_MAX_TOKENS = 160


@dataclass(frozen=True, slots=True)
class Result:
    """The answers to all questions: their texts and total figures."""

    texts: list[str]
    stats: GenerationStats

    @property
    def tokens_per_second(self) -> float:
        return self.stats.tokens_per_second or 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether exact texts are the same alone and with a back; None: not measurable here, for the reason."""

    same: bool | None
    reason: str = ""

    def __str__(self) -> str:
        if self.same is None:
            return f"not compared: {self.reason}"
        return f"{'yes, every character' if self.same else 'NO'} (compared with --exact)"


def main(arguments: Sequence[str]) -> None:
    """Ask without a back, ask with one, compare; then chat, if there is a terminal. It takes no arguments."""
    if arguments:
        raise ConfigError("there are no options")
    configure_logging("warning")
    screen = Screen(sys.stdout, sys.stderr, os.environ)
    lead_cpus, back_cpus = split_cores(sorted(cpus.usable()))
    print("llama-duo: a lead answers alone, then with a back that drafts for it on another core.\n")
    print(
        "The model is the small one that ships with llama-duo, grown to 0.4G parameters: it knows as little\n"
        "as the small one and costs as much as a big one. What is real is the speed-up.\n"
    )
    model = str(LeadSettings().model_path(lambda: False))
    lead, url = start_lead("--model", model, "--cpus", lead_cpus, *_FORGETFUL)
    with lead, LeadClient(url, timeout_s=_TIMEOUT_S) as client:
        print(f"--- the lead alone (cores {lead_cpus}) ---\n")
        alone = _ask_all(client, screen)
        with start_back(url, "--cpus", back_cpus):
            print(f"\n--- the same with a back (core {back_cpus}); on a terminal its tokens are green ---\n")
            together = _ask_all(client, screen)
            print("--- the texts once more with --exact, alone and with a back ---\n", flush=True)
            summary = _summarize(alone, together, _compare_texts(model, lead_cpus, back_cpus))
            if sys.stdin.isatty() and sys.stdout.isatty():
                print("\nNow ask it yourself (:help for commands, :quit to end).\n")
                run_in_foreground([sys.executable, "-m", "chat", "--lead", url])
                return
    print(json.dumps(summary))


def _compare_texts(model: str, lead_cpus: str, back_cpus: str) -> Comparison:
    try:
        lead, url = start_lead("--model", model, "--cpus", lead_cpus, "--exact")
    except ProgramError as error:
        return Comparison(None, str(error).splitlines()[-1])
    with lead, LeadClient(url, timeout_s=_TIMEOUT_S) as client:
        alone = [_answer(client, question).text for question in QUESTIONS]
        with start_back(url, "--cpus", back_cpus):
            return Comparison([_answer(client, question).text for question in QUESTIONS] == alone)


def _ask_all(client: LeadClient, screen: Screen) -> Result:
    answers = [_ask(client, screen, question) for question in QUESTIONS]
    return Result(
        [answer.text for answer in answers], sum((answer.stats for answer in answers), GenerationStats())
    )


def _ask(client: LeadClient, screen: Screen, question: str) -> ChatAnswer:
    print(f"> {question}", flush=True)
    answer = _answer(client, question, screen)
    screen.end_answer()
    print(f"  [{', '.join(figures(answer.stats))}]\n", flush=True)
    return answer


def _answer(client: LeadClient, question: str, screen: Screen | None = None) -> ChatAnswer:
    answer = ChatAnswer(time.monotonic)
    request = {"messages": [{"role": "user", "content": question}], "max_tokens": _MAX_TOKENS, "seed": 1}
    for token in client.stream(request, answer):
        if screen:
            screen.token(token.text, token.source)
    return answer


def _summarize(alone: Result, together: Result, comparison: Comparison) -> dict[str, float | bool | None]:
    speedup = together.tokens_per_second / alone.tokens_per_second
    drafts = together.stats
    share = drafts.accepted_share or 0.0
    n_same = sum(one == other for one, other in zip(alone.texts, together.texts, strict=True))
    rows: Sequence[tuple[str, str]] = (
        ("alone", f"{alone.tokens_per_second:.1f} tokens/s"),
        ("with a back", f"{together.tokens_per_second:.1f} tokens/s"),
        ("speed-up", f"{speedup:.2f}"),
        ("accepted", f"{drafts.n_accepted} of {drafts.n_drafted} draft tokens ({share:.0%})"),
        ("same text", str(comparison)),
        ("", f"in the usual mode, as above: {n_same} of {len(QUESTIONS)}"),
    )
    print("--- result ---\n")
    for name, value in rows:
        print(f"{name:>12}  {value}")
    print(flush=True)
    return {
        "tokens_per_second_alone": round(alone.tokens_per_second, 2),
        "tokens_per_second_with_back": round(together.tokens_per_second, 2),
        "speedup": round(speedup, 3),
        "accepted_fraction": round(share, 3),
        "same_text": comparison.same,
    }
