"""What the target answers, and its hidden states: the texts that the draft model learns from.

    python answers.py --target smollm2-135m.gguf --prompts prompts.jsonl --out answers

Questions are answered in many slots at once, half of them with the likeliest tokens, half sampled at 0.8.
It can be stopped at any time: what the files of `out` have is not answered again. Each file has, for all
its answers one after the other: `ids` with prompts, their `lengths`, how many tokens are `prompts`, the ids
`top` of the 16 likeliest tokens at each token of an answer, and for every token, prompts too, the target's
states (float16): `inner` after some layers, and `hidden` after the last norm, whose product with the
embedding is the logits.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import model as llama
import numpy as np
import torch
from numpy.typing import NDArray
from target import chat_prompt, load_target, load_tokenizer
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

N_TOP = 16
INNER = (2, 12, 16, 18, 21, 24)
"""The layers of the target after which its states are kept."""
_PART = 64  # answers in a file
_LONGEST_PROMPT, _LONGEST_ANSWER = 248, 200  # tokens
_TEMPERATURES = (0.0, 0.8)


@dataclass
class Answer:
    question: int
    ids: list[int]
    n_prompt: int
    temperature: float
    states: list[Tensor] = field(default_factory=list)
    """For each token, [kept layers, dim]."""
    top: list[NDArray[np.uint16]] = field(default_factory=list)
    generator: torch.Generator | None = None


class Decoder:
    """The target with a KV cache of `n_slots` texts."""

    def __init__(self, target: llama.Model, n_slots: int) -> None:
        self._model = target
        c = target.config
        self._length = _LONGEST_PROMPT + _LONGEST_ANSWER
        shape = (c.layers, n_slots, c.kv_heads, self._length, c.head_dim)
        self._keys, self._values = torch.zeros(shape), torch.zeros(shape)

    def read(self, slot: int, ids: list[int]) -> Tensor:
        """Fill a slot with a prompt; its states [tokens, kept layers, dim]."""
        return self._decode(
            torch.tensor([ids]), torch.arange(len(ids))[None], torch.tensor([slot]), len(ids)
        )[0]

    def step(self, slots: Tensor, ids: Tensor, positions: Tensor) -> Tensor:
        """One more token of each slot; the states [slots, kept layers, dim]."""
        return self._decode(ids[:, None], positions[:, None], slots, int(positions.max()) + 1)[:, 0]

    def _decode(self, ids: Tensor, positions: Tensor, slots: Tensor, n_seen: int) -> Tensor:
        model, c = self._model, self._model.config
        n_rows, n_new = ids.shape
        x = model.token_embd(ids)
        cos, sin = model.cos[positions][:, :, None], model.sin[positions][:, :, None]
        # For all heads of each group: which of the seen tokens each new one sees.
        visible = (torch.arange(n_seen)[None, None] <= positions[:, :, None])[:, None, None]
        whole = n_rows == self._keys.shape[1]  # all slots, in order: no copy of the cache
        kept = []
        for layer, block in enumerate(model.blk):
            h = block.attn_norm(x)
            q = _rotate(block.attn_q(h).view(n_rows, n_new, c.heads, c.head_dim), cos, sin)
            k = _rotate(block.attn_k(h).view(n_rows, n_new, c.kv_heads, c.head_dim), cos, sin)
            v = block.attn_v(h).view(n_rows, n_new, c.kv_heads, c.head_dim)
            self._keys[layer][slots[:, None], :, positions] = k
            self._values[layer][slots[:, None], :, positions] = v
            keys, values = self._keys[layer, :, :, :n_seen], self._values[layer, :, :, :n_seen]
            if not whole:
                keys, values = keys[slots], values[slots]
            q = q.view(n_rows, n_new, c.kv_heads, -1, c.head_dim).permute(0, 2, 3, 1, 4)
            scores = q.reshape(n_rows, c.kv_heads, -1, c.head_dim) @ keys.transpose(-1, -2) * c.head_dim**-0.5
            scores = scores.view(n_rows, c.kv_heads, -1, n_new, n_seen).masked_fill(~visible, -torch.inf)
            mixed = scores.softmax(-1).view(n_rows, c.kv_heads, -1, n_seen) @ values
            mixed = mixed.view(n_rows, c.kv_heads, -1, n_new, c.head_dim).permute(0, 3, 1, 2, 4)
            x = x + block.attn_output(mixed.reshape(n_rows, n_new, c.dim))
            h = block.ffn_norm(x)
            x = x + block.ffn_down(functional.silu(block.ffn_gate(h)) * block.ffn_up(h))
            if layer in INNER:
                kept.append(x)
        return torch.stack([*kept, model.output_norm(x)], dim=2)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Writer:
    """Answers questions in all slots, each as soon as one is free."""

    def __init__(self, target: llama.Model, ends: set[int], n_slots: int) -> None:
        self._decoder = Decoder(target, n_slots)
        self._embedding = target.token_embd.weight
        self._ends = ends
        self._n_slots = n_slots

    @torch.inference_mode()
    def answer(self, waiting: Iterator[Answer]) -> Iterator[Answer]:
        """All of them, in the order in which they end."""
        running: list[Answer | None] = [None] * self._n_slots
        idle = Answer(0, [0], 1, 0.0)
        while True:
            for slot in range(self._n_slots):
                if running[slot] is None and (new := next(waiting, None)):
                    running[slot] = new
                    states = self._decoder.read(slot, new.ids)
                    new.states += states.half()
                    self._choose([new], states[-1:])
            if not any(running):
                return
            rows = [each or idle for each in running]
            ids = torch.tensor([each.ids[-1] for each in rows])
            positions = torch.tensor([len(each.ids) - 1 for each in rows])
            states = self._decoder.step(torch.arange(self._n_slots), ids, positions)
            for slot, each in enumerate(running):
                if each and (each.ids[-1] in self._ends or len(each.ids) - each.n_prompt >= _LONGEST_ANSWER):
                    yield each
                    running[slot] = None
                elif each:
                    each.states.append(states[slot].half())
            alive = [(each, slot) for slot, each in enumerate(running) if each]
            if alive:
                self._choose([each for each, _ in alive], states[[slot for _, slot in alive]])

    def _choose(self, rows: list[Answer], states: Tensor) -> None:
        logits = states[:, -1] @ self._embedding.T
        top = logits.topk(N_TOP).indices
        short = top.numpy().astype(np.uint16)
        for i, each in enumerate(rows):
            token = top[i, 0]
            if each.temperature:
                each.generator = each.generator or torch.Generator().manual_seed(each.question)
                heated = (logits[i] / each.temperature).softmax(-1)
                token = torch.multinomial(heated, 1, generator=each.generator)
            each.ids.append(int(token))
            each.top.append(short[i])


def save(path: Path, answers: list[Answer]) -> None:
    states = torch.stack([state for each in answers for state in each.states]).numpy()
    arrays = {
        "ids": np.concatenate([np.array(each.ids, np.uint16) for each in answers]),
        "lengths": np.array([len(each.ids) for each in answers], np.int32),
        "questions": np.array([each.question for each in answers], np.int32),
        "prompts": np.array([each.n_prompt for each in answers], np.int32),
        "temperatures": np.array([each.temperature for each in answers], np.float32),
        "inner": states[:, :-1],
        "hidden": states[:, -1],
        "top": np.concatenate([np.stack(each.top) for each in answers]),
    }
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as file:
        np.savez(file, **arrays)
    temporary.replace(path)


def _waiting(questions: Path, tokenizer: Tokenizer, done: set[int]) -> Iterator[Answer]:
    for i, line in enumerate(questions.read_text(encoding="utf-8").splitlines()):
        each = json.loads(line)
        text = each["prompt"] if each["kind"] == "completion" else chat_prompt(each["prompt"])
        ids = tokenizer.encode(text).ids
        if i not in done and len(ids) <= _LONGEST_PROMPT:
            yield Answer(i, ids, len(ids), _TEMPERATURES[i % len(_TEMPERATURES)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(arguments.target)
    ends = {tokenizer.token_to_id(token) for token in ("<|im_end|>", "<|endoftext|>")}
    writer = Writer(load_target(arguments.target), ends, arguments.slots)
    parts = sorted(arguments.out.glob("*.npz"))
    done = {int(i) for part in parts for i in np.load(part)["questions"]}
    answers: list[Answer] = []
    began = time.time()
    for answer in writer.answer(_waiting(arguments.prompts, tokenizer, done)):
        answers.append(answer)
        if len(answers) == _PART:
            save(arguments.out / f"{len(parts):04}.npz", answers)
            parts.append(arguments.out)
            n_tokens = sum(len(each.top) for each in answers)
            print(
                f"part {len(parts)}: {n_tokens} tokens, {n_tokens / (time.time() - began):.0f} a second",
                flush=True,
            )
            answers, began = [], time.time()


if __name__ == "__main__":
    main()
