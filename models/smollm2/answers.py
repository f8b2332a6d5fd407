r"""What the target answers: the texts that the draft model learns from.

    python answers.py --target smollm2-135m.gguf --prompts prompts.jsonl --out answers \
        [--device cuda --slots 2048 --part 2048]

Questions are answered in many slots at once, with the likeliest tokens or sampled. It can be stopped at any
time: what the files of `out` have is not answered again. Each file has, for all its answers one after the
other: `ids` with prompts, their `lengths`, how many tokens are `prompts`, `questions` and `temperatures`.
"""

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import model as llama
import numpy as np
import torch
from numpy.typing import NDArray
from target import chat_prompt, load_target, load_tokenizer, to_device
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

_LONGEST_PROMPT, _LONGEST_ANSWER = 255, 241  # tokens; the first one comes from the prompt, then whole rounds
_ROUND = 16  # tokens of each slot between two looks at which have ended
_READ_AT_ONCE = 256  # prompts
_TEMPERATURES = (0.0, 0.8, 0.0, 0.8, 0.5)
_SHORTEST_CUT = 32  # tokens of an answer that is kept when time is up
_SORTED = 4  # times as many questions as slots are taken by length, so that less of the cache is read
_STEP_OF_LENGTH = 64
_SMALLEST = 1e-20


@dataclass
class Answer:
    question: int
    ids: list[int]
    n_prompt: int
    temperature: float

    @property
    def n_own(self) -> int:
        return len(self.ids) - self.n_prompt


class Decoder:
    """The target with a KV cache of `n_slots` texts."""

    def __init__(self, target: llama.Model, n_slots: int) -> None:
        self._model, c = target, target.config
        weight = target.token_embd.weight
        self.length = _LONGEST_PROMPT + _LONGEST_ANSWER + _ROUND
        shape = (c.layers, n_slots, c.kv_heads, self.length, c.head_dim)
        self._keys, self._values = weight.new_zeros(shape), weight.new_zeros(shape)
        self._slots = torch.arange(n_slots, device=weight.device)
        self._places = torch.arange(self.length, device=weight.device)
        self._joined = [
            torch.cat([block.attn_q.weight, block.attn_k.weight, block.attn_v.weight]) for block in target.blk
        ]

    def read(self, slots: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """Fill slots with prompts, padded at the end; the states [slots, dim] after their last tokens."""
        n_rows, n_time = ids.shape
        c = self._model.config
        x = self._model.token_embd(ids)
        positions = self._places[:n_time].expand(n_rows, n_time)
        for layer in range(c.layers):
            q, k, v = self._heads(layer, x, positions)
            self._keys[layer, slots, :, :n_time] = k
            self._values[layer, slots, :, :n_time] = v
            group = c.heads // c.kv_heads
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = self._rest(layer, x, mixed.transpose(1, 2).flatten(2))
        last: Tensor = self._model.output_norm(x[torch.arange(n_rows, device=x.device), lengths - 1])
        return last

    def step(self, ids: Tensor, positions: Tensor, n_seen: int) -> Tensor:
        """One more token of each slot, none of them at `n_seen` or later; the states [slots, dim]."""
        c = self._model.config
        x = self._model.token_embd(ids[:, None])
        # added to the scores: which of the cached tokens each slot sees
        hidden = self._places[:n_seen] > positions[:, None]
        mask = torch.zeros_like(hidden, dtype=x.dtype).masked_fill_(hidden, -torch.inf)
        mask = mask[:, None, None].expand(-1, c.kv_heads, c.heads // c.kv_heads, -1)
        for layer in range(c.layers):
            q, k, v = self._heads(layer, x, positions[:, None])
            self._keys[layer][self._slots, :, positions] = k[:, :, 0]
            self._values[layer][self._slots, :, positions] = v[:, :, 0]
            # the query heads that share a key/value head are as if they were tokens of it
            q = q.view(len(ids), c.kv_heads, -1, c.head_dim)
            keys, values = self._keys[layer, :, :, :n_seen], self._values[layer, :, :, :n_seen]
            mixed = functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
            x = self._rest(layer, x, mixed.reshape(len(ids), 1, c.dim))
        last: Tensor = self._model.output_norm(x[:, 0])
        return last

    def _heads(self, layer: int, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of new tokens, each [rows, heads, new, head_dim]."""
        model, c = self._model, self._model.config
        heads = functional.linear(model.blk[layer].attn_norm(x), self._joined[layer])
        heads = heads.view(*x.shape[:2], c.heads + 2 * c.kv_heads, c.head_dim)
        turned, v = heads.split([c.heads + c.kv_heads, c.kv_heads], dim=2)
        turned = _rotate(turned, model.cos[positions][:, :, None], model.sin[positions][:, :, None])
        q, k = turned.split([c.heads, c.kv_heads], dim=2)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def _rest(self, layer: int, x: Tensor, mixed: Tensor) -> Tensor:
        block = self._model.blk[layer]
        x = x + block.attn_output(mixed)
        h = block.ffn_norm(x)
        down: Tensor = block.ffn_down(functional.silu(block.ffn_gate(h)) * block.ffn_up(h))
        return x + down


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Slots:
    """The texts of all slots on the device: their last tokens, where they are, and how to choose the next."""

    def __init__(self, target: llama.Model, n_slots: int, *, graphs: bool) -> None:
        device = target.token_embd.weight.device
        self._decoder = Decoder(target, n_slots)
        self._head = target.token_embd.weight.float().T
        self._ids = torch.zeros(n_slots, dtype=torch.long, device=device)
        self._positions = torch.zeros(n_slots, dtype=torch.long, device=device)
        self._temperatures = torch.zeros(n_slots, device=device)
        self._history = torch.zeros(_ROUND, n_slots, dtype=torch.long, device=device)
        self._as_graphs = graphs and self._ids.is_cuda
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def fill(self, slots: list[int], new: list[Answer]) -> list[int]:
        """Read prompts; the first token of each answer."""
        device = self._ids.device
        lengths = torch.tensor([each.n_prompt for each in new])
        ids = torch.zeros(len(new), int(lengths.max()), dtype=torch.long)
        for row, each in zip(ids, new, strict=True):
            row[: each.n_prompt] = torch.tensor(each.ids)
        at, lengths = torch.tensor(slots).to(device), lengths.to(device)
        temperatures = torch.tensor([each.temperature for each in new]).to(device)
        chosen = self._choose(self._decoder.read(at, ids.to(device), lengths), temperatures)
        self._ids[at], self._positions[at], self._temperatures[at] = chosen, lengths, temperatures
        first: list[int] = chosen.tolist()
        return first

    def go_on(self, n_longest: int) -> NDArray[np.int64]:
        """The next tokens of all slots, [slots, _ROUND]; the longest text has `n_longest` tokens by now."""
        n_seen = -(-(n_longest + _ROUND) // _STEP_OF_LENGTH) * _STEP_OF_LENGTH
        n_seen = min(n_seen, self._decoder.length)
        for row in self._history:
            self._advance(n_seen)
            row.copy_(self._ids)
        return self._history.T.cpu().numpy()

    def _advance(self, n_seen: int) -> None:
        if self._as_graphs:
            if n_seen not in self._graphs:
                self._graphs[n_seen] = self._record(n_seen)
            self._graphs[n_seen].replay()
        else:
            self._take_step(n_seen)

    def _take_step(self, n_seen: int) -> None:
        states = self._decoder.step(self._ids, self._positions, n_seen)
        self._ids.copy_(self._choose(states, self._temperatures))
        # slots without a text go on, too
        self._positions.add_(1).clamp_(max=n_seen - 1)

    def _record(self, n_seen: int) -> torch.cuda.CUDAGraph:
        """A step as one launch: it has a thousand kernels, which would take longer to launch than to run."""
        ids, positions = self._ids.clone(), self._positions.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._take_step(
                n_seen
            )  # so that libraries allocate what they need; the next step writes the same
        torch.cuda.current_stream().wait_stream(side)
        self._ids.copy_(ids)
        self._positions.copy_(positions)
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self._graphs.values())).pool() if self._graphs else None
        with torch.cuda.graph(graph, pool=pool):
            self._take_step(n_seen)
        return graph

    def _choose(self, states: Tensor, temperatures: Tensor) -> Tensor:
        """The likeliest tokens where the temperature is zero, otherwise sampled ones."""
        logits = states.float() @ self._head
        noise = torch.empty_like(logits).exponential_().clamp_(min=_SMALLEST).log_()  # negated: of Gumbel
        return torch.addcmul(logits, noise, temperatures[:, None], value=-1).argmax(-1)


class Writer:
    """Answers questions in all slots, each as soon as one is free."""

    def __init__(self, target: llama.Model, ends: set[int], n_slots: int, *, graphs: bool = True) -> None:
        self._slots = Slots(target, n_slots, graphs=graphs)
        self._ends = np.array(sorted(ends))
        self._running: list[Answer | None] = [None] * n_slots

    @torch.inference_mode()
    def answer(self, waiting: Iterator[Answer], until: float) -> Iterator[Answer]:
        """All of them, in the order in which they end; what is not complete at the time `until` is cut."""
        while True:
            self._fill(waiting)
            running = [each for each in self._running if each]
            if not running or time.time() > until:
                yield from (each for each in running if each.n_own >= _SHORTEST_CUT)
                return
            tokens = self._slots.go_on(max(len(each.ids) for each in running))
            yield from self._append(tokens)

    def _fill(self, waiting: Iterator[Answer]) -> None:
        free = [slot for slot, each in enumerate(self._running) if each is None]
        for start in range(0, len(free), _READ_AT_ONCE):
            new = [each for _, each in zip(free[start : start + _READ_AT_ONCE], waiting, strict=False)]
            if not new:
                return
            slots = free[start : start + len(new)]
            for slot, each, token in zip(slots, new, self._slots.fill(slots, new), strict=True):
                each.ids.append(token)
                self._running[slot] = each

    def _append(self, tokens: NDArray[np.int64]) -> Iterator[Answer]:
        is_end = np.isin(tokens, self._ends)
        n_new = np.where(is_end.any(1), is_end.argmax(1) + 1, _ROUND).tolist()
        for slot, each in enumerate(self._running):
            if each is None:
                continue
            ended = each.ids[-1] in self._ends  # with its first token
            if not ended:
                each.ids += tokens[slot, : n_new[slot]].tolist()
                ended = bool(is_end[slot].any()) or each.n_own >= _LONGEST_ANSWER
            if ended:
                self._running[slot] = None
                yield each


def save(path: Path, answers: list[Answer]) -> None:
    arrays = {
        "ids": np.concatenate([np.array(each.ids, np.uint16) for each in answers]),
        "lengths": np.array([len(each.ids) for each in answers], np.int32),
        "questions": np.array([each.question for each in answers], np.int32),
        "prompts": np.array([each.n_prompt for each in answers], np.int32),
        "temperatures": np.array([each.temperature for each in answers], np.float32),
    }
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as file:
        np.savez(file, **arrays)
    temporary.replace(path)


def _waiting(questions: Path, tokenizer: Tokenizer, done: set[int], n_sorted: int) -> Iterator[Answer]:
    """Questions in their order, but `n_sorted` at a time by length, up and down in turns."""
    lines = questions.read_text(encoding="utf-8").splitlines()

    def encoded(start: int) -> list[tuple[int, list[int]]]:
        asked = [json.loads(line) for line in lines[start : start + n_sorted]]
        texts = [i["prompt"] if i["kind"] == "completion" else chat_prompt(i["prompt"]) for i in asked]
        return [(start + i, each.ids) for i, each in enumerate(tokenizer.encode_batch(texts))]

    with ThreadPoolExecutor(1) as pool:  # ahead of what is asked for
        for turn, part in enumerate(pool.map(encoded, range(0, len(lines), n_sorted))):
            for i, ids in sorted(part, key=lambda pair: len(pair[1]), reverse=turn % 2 == 1):
                if i not in done and len(ids) <= _LONGEST_PROMPT:
                    yield Answer(i, ids, len(ids), _TEMPERATURES[i % len(_TEMPERATURES)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--part", type=int, default=64, help="answers in a file")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which it stops")
    parser.add_argument("--no-graphs", action="store_true", help="launch each kernel of the GPU by itself")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    until = time.time() + 60 * arguments.minutes
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    torch.set_float32_matmul_precision("high")
    arguments.out.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(arguments.target)
    ends = {tokenizer.token_to_id(token) for token in ("<|im_end|>", "<|endoftext|>")}
    target = to_device(load_target(arguments.target), arguments.device)
    writer = Writer(target, ends, arguments.slots, graphs=not arguments.no_graphs)
    parts = sorted(arguments.out.glob("*.npz"))
    done = {int(i) for part in parts for i in np.load(part)["questions"]}
    waiting = _waiting(arguments.prompts, tokenizer, done, _SORTED * arguments.slots)
    answers: list[Answer] = []  # of the next file
    n_files, n_tokens, began = len(parts), 0, time.time()

    def write() -> None:
        nonlocal answers, n_files
        save(arguments.out / f"{n_files:04}.npz", answers)
        answers, n_files = [], n_files + 1
        print(
            f"part {n_files}: {n_tokens} tokens, {n_tokens / (time.time() - began):.0f} a second", flush=True
        )

    for answer in writer.answer(waiting, until):
        answers.append(answer)
        n_tokens += answer.n_own
        if len(answers) == arguments.part:
            write()
    if answers:
        write()


if __name__ == "__main__":
    main()
