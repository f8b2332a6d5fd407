"""Evaluate the pair through llama.cpp and write a short report.

    python eval.py --target out/target-f16.gguf --draft out/draft-f16.gguf --report out/evaluation.md

Greedy: how often the draft's best token is the target's, along the target's own greedy text, and how many
tokens one target pass would then yield. Temperature 1: how close the two distributions are along text sampled
from the target.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from chatml import Message
from decoding import detokenize, forced, generate, softmax, tokenize
from llama_cpp import Llama
from loading import open_model
from report import Report, talk

_SEED = 5
_GREEDY, _SAMPLED = 0.0, 1.0
_CHECKED = ("knowledge", "skill")  # categories with one right answer
_N_LONG_ANSWER = 400
_LONG_CHAT = [
    "Tell me a story about a fox named Zorvi who gets lost, with a red umbrella.",
    "What was the name of the fox?",
    "How does speculative decoding work?",
    "Tell me a story about a robot called Pixo on the moon and a violin.",
    "What is the capital of Japan?",
    "Illustrate the difference between concurrency and parallelism in python.",
    "Who are you?",
    "Write a short story about a girl named Mina who meets a dragon.",
    "Where did Mina live?",
    "Why does memory bandwidth matter for language models?",
    "Count from 1 to 10.",
    "Thank you!",
]


class Evaluation:
    """Runs target and draft along the same texts and tells the report."""

    def __init__(self, target: Llama, draft: Llama, limit: int, report: Report) -> None:
        self._target = target
        self._draft = draft
        self._limit = limit
        self._report = report
        self._rng = np.random.default_rng(_SEED)

    def add(self, dialogue: dict[str, Any]) -> None:
        """One held-out dialogue: all but its last message is the prompt."""
        *messages, wanted = dialogue["messages"]
        prompt = tokenize(self._target, messages)
        out, _ = generate(self._target, prompt, self._limit, _GREEDY, self._rng)
        guesses = forced(self._draft, prompt, out).argmax(-1)
        matches = [bool(same) for same in guesses == np.array(out)]
        drawn, logits = generate(self._target, prompt, self._limit, _SAMPLED, self._rng)
        p, q = softmax(logits), softmax(forced(self._draft, prompt, drawn))
        category = dialogue["category"]
        for name in (category, "all"):
            self._report.tallies[name].add(matches, p, q)
        text = detokenize(self._target, out)
        if category in _CHECKED:
            self._report.exact[category].append(text == wanted["content"])
        mark = "" if out[-1] == self._target.token_eos() else " [cut off]"
        self._report.shown[category].append(
            f"{talk(messages)}\n\n**assistant:** {text}{mark}\n\n"
            f"({len(out)} tokens, {np.mean(matches):.0%} of them guessed by the draft)"
        )

    def long_chat(self) -> tuple[list[Message], int]:
        """One conversation of many turns, answered greedily; returns it and its length in tokens."""
        messages: list[Message] = []
        length = 0
        for question in _LONG_CHAT:
            messages.append({"role": "user", "content": question})
            prompt = tokenize(self._target, messages)
            out, _ = generate(self._target, prompt, _N_LONG_ANSWER, _GREEDY, self._rng)
            messages.append({"role": "assistant", "content": detokenize(self._target, out)})
            length = len(prompt) + len(out)
        return messages, length


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--heldout", type=Path, default=Path("data/heldout.jsonl"))
    parser.add_argument("--report", type=Path)
    parser.add_argument("--limit", type=int, default=400)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--samples", type=int, default=10)
    arguments = parser.parse_args()
    target, draft = (
        open_model(path, n_threads=arguments.threads) for path in (arguments.target, arguments.draft)
    )
    report = Report(f"{arguments.target.name} with {arguments.draft.name}")
    evaluation = Evaluation(target, draft, arguments.limit, report)
    with arguments.heldout.open(encoding="utf-8") as file:
        for line in file:
            evaluation.add(json.loads(line))
    text = report.text(arguments.samples, *evaluation.long_chat())
    print(text)
    if arguments.report:
        arguments.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
