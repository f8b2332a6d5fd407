"""Mean loss per assistant token on fresh dialogues: python loss.py --ckpt ckpt/target.pt ckpt/draft.pt."""

import argparse
import random
from pathlib import Path

import torch
from checkpoint import load
from dialogues import Writer
from encoding import encode
from model import Model
from tokenizers import Tokenizer
from torch.nn import functional


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ckpt", type=Path, nargs="+", required=True)
    parser.add_argument("--tokenizer", type=Path, default=Path("data/tokenizer.json"))
    parser.add_argument("--dialogues", type=int, default=300)
    parser.add_argument("--seed", type=int, default=987654)
    arguments = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    torch.set_num_threads(1)
    for path in arguments.ckpt:
        writer = Writer(random.Random(arguments.seed))
        loss, n_tokens = mean_loss(load(path)[0].eval(), tokenizer, writer, arguments.dialogues)
        print(path.name, f"loss {loss:.4f} per assistant token, {n_tokens} tokens")


@torch.no_grad()
def mean_loss(model: Model, tokenizer: Tokenizer, writer: Writer, n_dialogues: int) -> tuple[float, int]:
    """The mean over what the assistant says, and how many tokens that is."""
    total, n_tokens = 0.0, 0
    for _ in range(n_dialogues):
        document = encode(writer.dialogue()["messages"], tokenizer)
        ids = torch.tensor([document.ids])
        each = functional.cross_entropy(model(ids[:, :-1])[0], ids[0, 1:], reduction="none")
        own = torch.tensor(document.weights[1:]) == 1
        total += float(each[own].sum())
        n_tokens += int(own.sum())
    return total / n_tokens, n_tokens


if __name__ == "__main__":
    main()
