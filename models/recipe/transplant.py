"""A checkpoint with the weights of a model that was trained, for another tokenizer: training goes on from it.

    python transplant.py --model draft-f16.gguf --tokenizer bpe2048/tokenizer.json --out bpe2048/draft.pt

A token that the model knew keeps its vector; another gets the mean of the longest known ones that spell it.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from checkpoint import save
from gguf import GGUFReader, dequantize
from model import PRESETS, Model
from numpy.typing import NDArray
from tokenizers import Tokenizer

_EMBEDDING = "token_embd.weight"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True, help="a GGUF file of this recipe")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="draft", help="its shape")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    reader = GGUFReader(arguments.model)
    weights = {each.name: dequantize(each.data, each.tensor_type) for each in reader.tensors}
    known: list[str] = reader.fields["tokenizer.ggml.tokens"].contents()
    wanted = Tokenizer.from_file(str(arguments.tokenizer)).get_vocab()
    weights[_EMBEDDING] = transplanted(weights[_EMBEDDING], known, sorted(wanted, key=wanted.__getitem__))
    model = Model(replace(PRESETS[arguments.preset], vocab=len(wanted)))
    model.load_state_dict({name: torch.from_numpy(np.array(each)) for name, each in weights.items()})
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    save(arguments.out, {"model": model.state_dict(), "config": model.config.to_dict()})


def transplanted(vectors: NDArray[np.float32], known: list[str], wanted: list[str]) -> NDArray[np.float32]:
    """The vectors of the tokens `wanted`; vectors: of the tokens `known`, shape (n_known, n_embd)."""
    ids = {token: i for i, token in enumerate(known)}
    return np.stack([vectors[_spelled(token, ids)].mean(axis=0) for token in wanted])


def _spelled(token: str, ids: dict[str, int]) -> list[int]:
    """The longest known tokens, from left to right; all bytes are known."""
    found, start = [], 0
    while start < len(token):
        end = next(end for end in range(len(token), start, -1) if token[start:end] in ids)
        found.append(ids[token[start:end]])
        start = end
    return found


if __name__ == "__main__":
    main()
