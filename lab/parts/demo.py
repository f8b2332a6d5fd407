"""`make demo`: shows what the project does, in two minutes on this machine.

The lead gets all cores but one, and the back the last one, like two computers. Speeds are measured in the
usual, fastest mode. Texts are compared in exact mode, because in the usual mode the last bits of logits
depend on the width of a batch.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from chat.answer import ChatAnswer, GenerationStats
from chat.client import LeadClient
from chat.render import Screen
from chat.report import figures
from lab.parts.models import grown_smollm2
from lab.parts.processes import ProgramError, run_in_foreground, split_cores, start_back, start_lead
from lab.planning.measurements import busy_cores, busy_warnings
from shared import cpus
from shared.logs import configure_logging
from shared.model_files.builtin import builtin_draft, grown_target, named_model
from shared.progress import Progress, progress_bar
from shared.python_child import child_command

_GROWN = (
    "The model is {small}, grown to 0.4B parameters. It gives the small model's\nanswers "
    "at the cost of a big model. The speed-up is real.\n"
)


@dataclass(frozen=True, slots=True)
class _Pair:
    introduction: str
    target: Callable[[Progress], Path]
    draft: Callable[[], Path]
    questions: Sequence[str]


_PAIRS = {
    "stories": _Pair(
        _GROWN.format(small="the small model that ships with llama-duo"),
        grown_target,
        builtin_draft,
        (
            "Tell me a story about a fox named Zorvi who gets lost, with a red umbrella.",
            "What is speculative decoding?",
            "Write a short story about a baker who finds a mysterious letter.",
        ),
    ),
    "smollm2": _Pair(
        _GROWN.format(small="SmolLM2-135M-Instruct"),
        grown_smollm2,
        lambda: named_model(Path("smollm2-draft")),
        (
            "Why do leaves change their color in autumn?",
            "Write a Python function that returns the three largest numbers of a list.",
            "How can I become a better listener?",
        ),
    ),
}
_FORGETFUL = ("--suffix-memory", "0")
"""The same questions are asked twice, so the lead must not draft from its memory of the first time."""
_TIMEOUT_S = 300.0
_MAX_TOKENS = 160


def main(arguments: Sequence[str]) -> None:
    """Ask without a back and with a back, and compare; then start a chat if there is a terminal."""
    parser = argparse.ArgumentParser(prog="bench demo", description=__doc__)
    parser.add_argument("--model", choices=_PAIRS, default="stories", help="target and draft model")
    pair = _PAIRS[parser.parse_args(arguments).model]
    configure_logging("warning")
    screen = Screen(sys.stdout, sys.stderr, os.environ)
    lead_cpus, back_cpus = split_cores(sorted(cpus.usable()))
    print("llama-duo: a lead answers alone, then with a back that drafts for it on another core.\n")
    print(pair.introduction, *busy_warnings(busy_cores()), sep="\n")
    draft = str(pair.draft())
    with progress_bar("creating the demo model") as progress:
        model = str(pair.target(progress))
    lead, url = start_lead("--model", model, "--cpus", lead_cpus, *_FORGETFUL)
    with lead, LeadClient(url, timeout_s=_TIMEOUT_S) as client:
        print(f"--- the lead alone (cores {lead_cpus}), with drafts from the text itself (ngram) ---\n")
        alone = _ask_all(client, screen, pair.questions)
        with start_back(url, "--model", draft, "--cpus", back_cpus):
            print(f"\n--- the same with a back (core {back_cpus}); on a terminal its tokens are green ---\n")
            together = _ask_all(client, screen, pair.questions)
            print("--- the texts once more with --exact, alone and with a back ---\n", flush=True)
            summary = _summarize(alone, together, *_compare_texts(pair, model, lead_cpus, back_cpus))
            if sys.stdin.isatty() and sys.stdout.isatty():
                print("\nNow ask it yourself (:help for commands, :quit to end).\n")
                run_in_foreground(child_command("chat", "--lead", url))
                return
    print(json.dumps(summary))


def _compare_texts(pair: _Pair, model: str, lead_cpus: str, back_cpus: str) -> tuple[bool | None, str]:
    """Return whether exact texts are the same alone and with a back (None: not measurable here), and the
    result in words.
    """
    try:
        lead, url = start_lead("--model", model, "--cpus", lead_cpus, "--exact")
    except ProgramError as error:
        return None, f"not compared: {str(error).splitlines()[-1]}"
    with lead, LeadClient(url, timeout_s=_TIMEOUT_S) as client:
        alone = [_answer(client, question).text for question in pair.questions]
        with start_back(url, "--model", str(pair.draft()), "--cpus", back_cpus):
            same = [_answer(client, question).text for question in pair.questions] == alone
    return same, f"{'yes, every character' if same else 'NO'} (compared with --exact)"


def _ask_all(client: LeadClient, screen: Screen, questions: Sequence[str]) -> list[ChatAnswer]:
    answers = []
    for question in questions:
        print(f"> {question}", flush=True)
        answers.append(_answer(client, question, screen))
        screen.end_answer()
        print(f"  [{_figures(answers[-1])}]\n", flush=True)
    return answers


def _figures(answer: ChatAnswer) -> str:
    """Return the statistics, with the numbers of accepted tokens by source."""
    sources = [f"{n} from {source}" for source, n in answer.n_accepted_by_source.items()]
    return ", ".join(figures(answer.stats)) + (f": {', '.join(sources)}" if sources else "")


def _answer(client: LeadClient, question: str, screen: Screen | None = None) -> ChatAnswer:
    answer = ChatAnswer(time.monotonic)
    request = {"messages": [{"role": "user", "content": question}], "max_tokens": _MAX_TOKENS, "seed": 1}
    for piece in client.stream(request, answer):
        if screen:
            screen.show_piece(piece)
    return answer


def _summarize(
    alone: Sequence[ChatAnswer], together: Sequence[ChatAnswer], same: bool | None, comparison: str
) -> dict[str, float | bool | None]:
    before, drafts = (
        sum((answer.stats for answer in answers), GenerationStats()) for answers in (alone, together)
    )
    slow, fast = before.tokens_per_second or 0.0, drafts.tokens_per_second or 0.0
    share = drafts.accepted_share or 0.0
    n_same = sum(one.text == other.text for one, other in zip(alone, together, strict=True))
    rows: Sequence[tuple[str, str]] = (
        ("alone", f"{slow:.1f} tokens/s"),
        ("with a back", f"{fast:.1f} tokens/s"),
        ("speed-up", f"{fast / slow:.2f}"),
        ("accepted", f"{drafts.n_accepted} of {drafts.n_drafted} draft tokens ({share:.0%})"),
        ("same text", comparison),
        ("", f"in the usual mode, as above: {n_same} of {len(alone)}"),
    )
    print("--- result ---\n")
    for name, value in rows:
        print(f"{name:>12}  {value}")
    print(flush=True)
    return {
        "tokens_per_second_alone": round(slow, 2),
        "tokens_per_second_with_back": round(fast, 2),
        "speedup": round(fast / slow, 3),
        "accepted_fraction": round(share, 3),
        "same_text": same,
    }
