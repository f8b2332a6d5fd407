"""`python -m bench exactness`: is a text the same, bit for bit, whatever happens around it?

Each text is first generated alone, by a lead that does nothing else and reuses nothing. Then it is generated
again in situations that must not matter. Texts are compared, and the probabilities of their tokens, which
differ as soon as any bit of the logits does. With --modes off the same shows how much usual texts depend on.
"""

import argparse
import itertools
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench import models, options, report, table
from bench.client import client
from bench.processes import Program, ProgramError, start_lead
from bench.prompts import KINDS, draw, preamble
from bench.quantized_models import SMALL, TYPES, quantized_target
from shared.errors import ConfigError
from shared.models.builtin import builtin_draft

COLUMNS = {
    "weights": ("weights", ""),
    "mode": ("--exact", ""),
    "situation": ("situation", ""),
    "n_texts": ("texts", "d"),
    "n_tokens": ("tokens", "d"),
    "n_other_text": ("other text", "d"),
    "n_other_bits": ("other bits", "d"),
}
_TEMPERATURES = (0.0, 0.8, 1.0)
_N_CLIENTS = 4
_CTX = 4096
_PREAMBLES = (0, 0, 40, 170)
"""Words before a prompt."""
_FOLLOW_UP = "Tell me more about that, please."
_FAULT_SECONDS = (0.1, 0.8)
_RESTART_SECONDS = (1.5, 3.0)
_QUICK = {"types": ["f16"], "texts": 6, "tokens": 48}


@dataclass(frozen=True, slots=True)
class Text:
    """A text as generated once: what a client sees of it, and its tokens' probabilities."""

    text: str
    probabilities: tuple[float, ...]


Body = Mapping[str, Any]
Ask = Callable[[Body], Text]


def main(arguments: Sequence[str]) -> None:
    """Measure, print a table and one line of JSON; status 1 if a text differed in exact mode."""
    settings = _parse(arguments)
    rows = [
        row
        for target, mode in itertools.product(_targets(settings), settings.modes)
        for row in _measure(settings, target, mode)
    ]
    table.show("texts that differ", rows, COLUMNS)
    report.finish("exactness", rows, settings)
    if any(row["mode"] != "off" and (row["n_other_text"] or row["n_other_bits"]) for row in rows):
        sys.exit(1)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench exactness", description=__doc__)
    parser.add_argument("--size", choices=[SMALL, *models.TARGET_SHAPES], default=SMALL, help="of the target")
    parser.add_argument("--types", type=options.listed(str), default=list(TYPES), help="of its weights")
    parser.add_argument("--target", type=Path, help="a GGUF file instead")
    parser.add_argument("--modes", type=options.listed(str), default=["on", "off"], help="of --exact")
    parser.add_argument("--texts", type=int, default=24, help="texts in each situation")
    parser.add_argument("--tokens", type=int, default=150, help="tokens of a text")
    parser.add_argument("--ignore-eos", action="store_true", help="let no text end earlier")
    parser.add_argument("--seed", type=int, default=1, help="seed of the prompts and the faults")
    parser.add_argument("--lead", default="", help="further options of the lead, separated by spaces")
    parser.add_argument("--situations", type=options.listed(str), default=[*SITUATIONS, _PREFIXES, _CHUNKS])
    report.add_options(parser)
    return report.parse(parser, arguments, _QUICK)


def _targets(settings: argparse.Namespace) -> list[tuple[str, Path]]:
    """What they are called, and their files."""
    if settings.target:
        return [(settings.target.stem, settings.target)]
    return [(weights, quantized_target(settings.size, weights)) for weights in settings.types]


def requests(n: int, length: Body, seed: int) -> list[dict[str, Any]]:
    """Chat requests of all kinds and temperatures; some have long system prompts, which are few.

    length: the fields that say how long answers are.
    """
    prompts = draw(list(KINDS), -(-n // len(KINDS)), seed)
    random.Random(seed).shuffle(prompts)  # noqa: S311 - a seeded order is wanted
    bodies = []
    for prompt, temperature, words in zip(
        prompts[:n], itertools.cycle(_TEMPERATURES), itertools.cycle(_PREAMBLES), strict=False
    ):
        system = [{"role": "system", "content": preamble(words, words)}] if words else []
        bodies.append(
            {
                "messages": [*system, {"role": "user", "content": prompt.text}],
                **length,
                "temperature": temperature,
                "seed": prompt.seed,
                "logprobs": True,
            }
        )
    return bodies


def follow_up(body: Body, answer: str) -> dict[str, Any]:
    """The next turn of a conversation: its prompt repeats what was generated."""
    turns = [{"role": "assistant", "content": answer}, {"role": "user", "content": _FOLLOW_UP}]
    return {**body, "messages": [*body["messages"], *turns]}


def count(references: Sequence[Text], texts: Sequence[Text]) -> dict[str, int]:
    """How many texts differ, and how many have tokens of other probabilities."""
    pairs = list(zip(references, texts, strict=True))
    return {
        "n_texts": len(pairs),
        "n_tokens": sum(len(text.probabilities) for text in texts),
        "n_other_text": sum(reference.text != text.text for reference, text in pairs),
        "n_other_bits": sum(reference.probabilities != text.probabilities for reference, text in pairs),
    }


@dataclass(frozen=True, slots=True)
class Site:
    """A running lead, what it is asked and what it answered when it did nothing else."""

    lead: Program
    url: str
    ask: Ask
    bodies: list[dict[str, Any]]
    rng: random.Random


Situation = Callable[[Site], list[Text]]


def _again(site: Site) -> list[Text]:
    """In another order, with reuse of prefixes."""
    order = site.rng.sample(range(len(site.bodies)), len(site.bodies))
    texts = {i: site.ask(site.bodies[i]) for i in order}
    return [texts[i] for i in range(len(site.bodies))]


def _one_by_one(site: Site) -> list[Text]:
    with _backs(site):
        return [site.ask(body) for body in site.bodies]


def _clients(site: Site) -> list[Text]:
    with _backs(site):
        return _at_once(site)


def _faulty_backs(site: Site) -> list[Text]:
    with _backs(site) as backs, _repeating(_FAULT_SECONDS, site.rng, lambda: _harm(site, backs)):
        return _at_once(site)


def _restarts(site: Site) -> list[Text]:
    with _backs(site), _repeating(_RESTART_SECONDS, site.rng, lambda: _kill_engine(site)):
        return _at_once(site)


SITUATIONS: Mapping[str, Situation] = {
    "again": _again,
    "backs": _one_by_one,
    "clients": _clients,
    "faults": _faulty_backs,
    "restarts": _restarts,
}
"""Of one lead, with the same texts."""
_PREFIXES = "prefixes"
"""Every text is followed by the next turn of its conversation."""
_CHUNKS = "chunks"
"""Another lead, which reads prompts in other pieces."""
_OTHER_CHUNKS = ("--batch-size", "40", "--parallel", "3")


def _measure(settings: argparse.Namespace, named: tuple[str, Path], mode: str) -> Iterator[dict[str, Any]]:
    weights, target = named
    length = {"max_tokens": settings.tokens, "ignore_eos": settings.ignore_eos}
    bodies = requests(settings.texts, length, settings.seed)
    arguments = ["--exact", mode, *settings.lead.split()]
    with _site(target, bodies, settings.seed, *arguments) as site:
        if site is None:
            return
        alone = _alone(site)
        for name in settings.situations:
            if name == _PREFIXES:
                yield _row(weights, mode, name, *_conversations(site, alone))
            elif name != _CHUNKS:
                yield _row(weights, mode, name, alone, SITUATIONS[name](site))
    if _CHUNKS in settings.situations:
        with _site(target, bodies, settings.seed, *arguments, *_OTHER_CHUNKS) as site:
            if site:
                yield _row(weights, mode, _CHUNKS, alone, _at_once(site))


def _alone(site: Site) -> list[Text]:
    return [site.ask(body | {"cache_prompt": False}) for body in site.bodies]


def _conversations(site: Site, alone: Sequence[Text]) -> tuple[list[Text], list[Text]]:
    """(alone, one turn after the other): of each text and the next turn."""
    later = [follow_up(body, text.text) for body, text in zip(site.bodies, alone, strict=True)]
    references = [*alone, *_alone(replace(site, bodies=later))]
    turns = [site.ask(turn) for body in zip(site.bodies, later, strict=True) for turn in body]
    return references, [*turns[::2], *turns[1::2]]


def _row(
    weights: str, mode: str, situation: str, alone: Sequence[Text], texts: Sequence[Text]
) -> dict[str, Any]:
    row = {"weights": weights, "mode": mode, "situation": situation, **count(alone, texts)}
    _tell(" ".join(map(str, row.values())))
    return row


@contextmanager
def _site(target: Path, bodies: list[dict[str, Any]], seed: int, *arguments: str) -> Iterator[Site | None]:
    """None if the lead refuses to start, which is told."""
    usual = ("--threads", "1", "--print", "none", "--max-restarts", "1000", "--ctx-size", str(_CTX * 4))
    try:
        lead, url = start_lead("--model", str(target), *usual, *arguments)
    except ProgramError as error:
        _tell(f"refused: {str(error).splitlines()[-1]}")
        yield None
        return
    with lead, client(url) as http:
        _tell(lead.wait_for("texts: .*").group(0))
        rng = random.Random(seed)  # noqa: S311 - a seeded choice is wanted
        yield Site(lead, url, lambda body: _ask(http, body), bodies, rng)


def _ask(http: httpx.Client, body: Body) -> Text:
    response = http.post("/v1/chat/completions", json=body)
    if not response.is_success:
        raise ConfigError(f"the lead answered {response.status_code}: {response.text[:300]}")
    choice = response.json()["choices"][0]
    tokens = choice["logprobs"]["content"]
    return Text(choice["message"]["content"], tuple(token["logprob"] for token in tokens))


def _at_once(site: Site) -> list[Text]:
    with ThreadPoolExecutor(_N_CLIENTS) as pool:
        return list(pool.map(site.ask, site.bodies))


@contextmanager
def _backs(site: Site) -> Iterator[list[Program]]:
    """An honest back and one whose drafts are mostly wrong."""
    with ExitStack() as stack:
        backs = [_start_honest(site), Program("bench.adversarial_back", "--lead", site.url, "--kind", "liar")]
        stack.callback(lambda: [back.stop() for back in backs])
        for back in backs:
            back.wait_for("drafting for ")
        yield backs


def _start_honest(site: Site) -> Program:
    return Program("back", "--lead", site.url, "--model", str(builtin_draft()), "--threads", "1")


def _harm(site: Site, backs: list[Program]) -> None:
    """Stop a back for a while, or kill the honest one and start another."""
    if site.rng.random() < 0.7:  # noqa: PLR2004 - starting another takes long
        back = site.rng.choice(backs)
        back.signal(signal.SIGSTOP)
        threading.Event().wait(site.rng.uniform(*_FAULT_SECONDS))
        back.signal(signal.SIGCONT)
    else:
        backs[0].signal(signal.SIGKILL)
        backs[0].stop()
        backs[0] = _start_honest(site)


def _kill_engine(site: Site) -> None:
    if not _is_at_work(site.url):  # engines that die again and again with nothing to do are given up
        return
    for child in psutil.Process(site.lead.process.pid).children():
        if "lead.engine" in child.cmdline():
            child.kill()


def _is_at_work(url: str) -> bool:
    with client(url) as http:
        is_ready = http.get("/health").is_success
        return is_ready and any(slot["is_processing"] for slot in http.get("/slots").json())


@contextmanager
def _repeating(
    seconds: tuple[float, float], rng: random.Random, action: Callable[[], None]
) -> Iterator[None]:
    """Call `action` again and again, after so many seconds each time, in another thread."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(rng.uniform(*seconds)):
            action()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
