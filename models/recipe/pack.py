"""Tokenize the dialogues and pack whole dialogues into rows of a fixed length.

    python pack.py --data data

writes data/rows{512,1024,2048}.npz: ids [rows, T + 1] and weight [rows, T + 1], where weight is 1 (or the
boost, in short answers) for what the assistant says (and its <|im_end|>), small for the rest and 0 for
padding. Rows hold whole dialogues only, so every dialogue begins as it will in use.
"""

import argparse
import json
import random
from pathlib import Path

import numpy as np
from draws import by_share
from encoding import Document, encode, token_id
from numpy.typing import NDArray
from tokenizers import Tokenizer

_WINDOW = 60  # waiting dialogues that are tried before a row is closed
Rows = tuple[NDArray[np.uint16], NDArray[np.float16]]


def main() -> None:
    arguments = _parse()
    tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    rng = random.Random(arguments.seed)
    groups = _grouped(arguments, tokenizer, rng)
    padding = token_id(tokenizer, "<|endoftext|>")
    too_long: list[Document] = []
    for length, documents in groups.items():
        documents.extend(too_long)  # of the shorter rows
        rng.shuffle(documents)
        (ids, weights), too_long = pack(documents, length, padding)
        np.savez(arguments.data / f"rows{length}.npz", ids=ids, weight=weights)
        print(length, "rows", weights.shape, "assistant share", round(float((weights >= 1).mean()), 3))
    print("dropped", len(too_long))


def pack(documents: list[Document], length: int, padding: int) -> tuple[Rows, list[Document]]:
    """First-fit packing over a window of waiting dialogues; returns what does not fit at all."""
    rows: list[list[int]] = []
    weights: list[list[float]] = []
    too_long: list[Document] = []
    waiting = documents[::-1]
    while waiting:
        row = _fill_row(waiting, length, too_long)
        if row.ids:
            n_free = length + 1 - len(row.ids)
            rows.append(row.ids + [padding] * n_free)
            weights.append(row.weights + [0.0] * n_free)
    return (np.array(rows, dtype=np.uint16), np.array(weights, dtype=np.float16)), too_long


def _fill_row(waiting: list[Document], length: int, too_long: list[Document]) -> Document:
    """Take from the end of `waiting` what fits into one row; what fits into none goes to `too_long`."""
    row = Document([], [])
    n_skipped = 0
    i = len(waiting) - 1
    while i >= 0 and n_skipped < _WINDOW:
        n = len(waiting[i].ids)
        if n > length + 1:
            too_long.append(waiting.pop(i))
        elif len(row.ids) + n <= length + 1:
            document = waiting.pop(i)
            row.ids.extend(document.ids)
            row.weights.extend(document.weights)
        else:
            n_skipped += 1
        i -= 1
    return row


def _grouped(
    arguments: argparse.Namespace, tokenizer: Tokenizer, rng: random.Random
) -> dict[int, list[Document]]:
    """The dialogues by the length of the rows they are for, shortest first."""
    groups: dict[int, list[Document]] = {512: [], 1024: [], 2048: []}
    lengths = ((arguments.shares[0], 1024), (sum(arguments.shares), 2048), (1.0, 512))
    with (arguments.data / "train.jsonl").open(encoding="utf-8") as file:
        for line in file:
            messages = json.loads(line)["messages"]
            length = by_share(rng, lengths)
            groups[length].append(encode(messages, tokenizer, arguments.boost, arguments.opening))
    return groups


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--data", type=Path, default=Path("data"))
    add("--tokenizer", type=Path, default=Path("data/tokenizer.json"))
    add("--boost", type=float, default=1.0, help="weight of short answers in the loss")
    add("--opening", type=float, default=1.0, help="weight of the beginnings of paragraphs in the loss")
    add("--seed", type=int, default=2)
    add("--shares", type=float, nargs=2, default=(0.13, 0.10), help="shares for rows of 1024 and of 2048")
    return parser.parse_args()


if __name__ == "__main__":
    main()
