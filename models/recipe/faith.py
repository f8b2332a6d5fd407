"""How faithfully stories keep to the request: name, kind, object, place, trouble.

python faith.py --model out/target-f16.gguf --stories 40 --temperature 0.8
"""

import argparse
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from decoding import detokenize, generate, tokenize
from language import article
from loading import open_model
from names import Naming
from plots import Plot, random_plot

_LIMIT = 350  # tokens of a story
_NAMINGS = {
    "listed names": Naming(invented=0.0, more=True),
    "invented names": Naming(invented=1.0, more=True),
}
_ASPECTS = ("name", "name everywhere", "kind", "object", "place", "trouble", "ended")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--stories", type=int, default=40)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=4242)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    llm = open_model(arguments.model, n_threads=arguments.threads)
    draws = np.random.default_rng(arguments.seed)
    for label, naming in _NAMINGS.items():
        rng = random.Random(arguments.seed)
        hits: Counter[str] = Counter()
        for _ in range(arguments.stories):
            plot = random_plot(rng, naming)
            prompt = tokenize(llm, [{"role": "user", "content": request(plot)}])
            out, _ = generate(llm, prompt, _LIMIT, arguments.temperature, draws)
            ended = bool(out) and out[-1] == llm.token_eos()
            hits.update(kept(plot, detokenize(llm, out), ended=ended))
        counts = ", ".join(f"{aspect} {hits[aspect]}/{arguments.stories}" for aspect in _ASPECTS)
        print(label, f"temperature {arguments.temperature}:", counts, flush=True)


def request(plot: Plot) -> str:
    """A request that names everything."""
    return (
        f"Tell me a story about {article(plot.kind)} named {plot.name} who {plot.problem.asks[0]}"
        f" {plot.place.where} the {plot.place.word}, with {article(plot.thing.name)}."
    )


def kept(plot: Plot, text: str, *, ended: bool) -> Iterator[str]:
    """The aspects in which the story keeps to the request."""
    lower = text.lower()
    # words with a capital inside a sentence: the hero, the helper, and little else
    inner = set(re.findall(r"(?<=[a-z,] )[A-Z][a-z]+", text))
    answers = {
        "name": plot.name in text,
        "name everywhere": plot.name in text and len(inner - {plot.name}) <= 1,
        "kind": plot.kind.lower() in lower,
        "object": plot.thing.name.lower() in lower,
        "place": plot.place.phrase.split()[-1] in lower,
        "trouble": any(fragment in text for fragment in _fragments(plot.problem.hook)),
        "ended": ended,
    }
    return (aspect for aspect, yes in answers.items() if yes)


def _fragments(templates: tuple[str, ...]) -> list[str]:
    """The longest literal piece of each sentence template."""
    return [max(re.split(r"\{\w+\}", template), key=len).strip(" .,") for template in templates]


if __name__ == "__main__":
    main()
