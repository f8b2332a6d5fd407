"""Train an EAGLE-3 head for the target, taught by what the target answered.

    python eagle.py --target smollm2-135m.gguf --answers answers --out eagle.pt --minutes 60

The head is one decoder layer (Li et al. 2025, arXiv:2503.01840). For the token at position p it reads the
token's embedding, and what the target knew at p - 1: the inputs of three of its layers, fused by `fc`. It
predicts the token at p + 1, and its own state replaces the target's for the token after that; so does it in
training, where each step reads the states of the one before. Embeddings and the rows of the output matrix are
the target's, so only the layer, `fc` and the norms are learned.

Each step is to have the target's distribution at temperature 0.8 over the tokens that answers have most; at
first, as in `distil.py`, the target's state, too. The target reads every text once; what the head needs of it
is kept in memory. It goes on from `out` if that is there, and reads answers that are written meanwhile.
"""

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from checkpoint import save
from distil import TEMPERATURE, Batch, Row, all_states, in_batches, read_rows
from model import Block, Config, Model, is_matrix, rotate
from target import load_target, to_device
from torch import Tensor, nn
from torch.nn import functional

LAYERS = (9, 19, 29)
"""Of the target, whose inputs are read."""
N_KNOWN = 8192
"""Tokens that the head can draft."""
N_STEPS = 3
"""Tokens in a row that it learns to draft."""
_SHARE_OF_STEP = 0.8  # how much a step counts, compared with the one before
_PROMPT_SHARE = 0.3  # how much a token of a prompt counts, compared with one of an answer
_HELD_OUT_EVERY = 64  # questions of which one is not learned from
_N_FIRST = 4  # tokens of a text, whose states are far larger than others
_SAVE_EVERY = 240.0  # seconds
_REPORT_EVERY = 20  # steps
_WARMUP = 20  # steps
_LAST_SHARE = 0.03  # of the learning rate
_MAX_GRADIENT = 1.0
_AT_ONCE = 128  # distributions
_STATES_UNTIL = 0.6  # part of the schedule in which states are compared, too


class Layer(Block):
    """A decoder layer whose attention reads a token's embedding beside a state."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        wide, kv = 2 * config.dim, config.head_dim * config.kv_heads
        self.attn_norm_2 = nn.RMSNorm(config.dim, eps=config.eps)
        self.attn_q = nn.Linear(wide, config.dim, bias=False)
        self.attn_k = nn.Linear(wide, kv, bias=False)
        self.attn_v = nn.Linear(wide, kv, bias=False)

    def step(self, embedded: Tensor, states: Tensor, cos: Tensor, sin: Tensor, read: list[Tensor]) -> Tensor:
        """New states [batch, time, dim]; `read` has keys and values of earlier steps, and gets this one's."""
        c, shape = self.config, (*states.shape[:2], -1, self.config.head_dim)
        x = torch.cat([self.attn_norm(embedded), self.attn_norm_2(states)], -1)
        q = rotate(self.attn_q(x).view(shape), cos, sin)
        k = rotate(self.attn_k(x).view(shape), cos, sin)
        v = self.attn_v(x).view(shape)
        read.append(torch.stack([k, v]).transpose(2, 3).repeat_interleave(c.heads // c.kv_heads, dim=2))
        x = states + self.attn_output(_attend(q.transpose(1, 2), read).transpose(1, 2).flatten(2))
        h = self.ffn_norm(x)
        down: Tensor = self.ffn_down(functional.silu(self.ffn_gate(h)) * self.ffn_up(h))
        return x + down


def _attend(q: Tensor, read: list[Tensor]) -> Tensor:
    """A draft sees the first step's tokens up to where it begins, and its own of each further step."""
    (keys, values), further = read[0], read[1:]
    n_time = q.shape[2]
    if not further:
        return functional.scaled_dot_product_attention(q, keys, values, is_causal=True)
    later = torch.ones(n_time, n_time, dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ keys.transpose(2, 3)).masked_fill(later, -torch.inf)
    own = [(q * k).sum(-1, keepdim=True) for k, _ in further]
    weights = torch.cat([scores, *own], -1).mul(q.shape[-1] ** -0.5).softmax(-1)
    mixed = weights[..., :n_time] @ values
    for i, (_, v) in enumerate(further):
        mixed = mixed + weights[..., n_time + i, None] * v
    return mixed


class Head(nn.Module):
    """The modules have the names of the GGUF tensors."""

    scale: Tensor
    """Of the inputs, which differ much in size; the file has it in `fc`."""
    cos: Tensor
    sin: Tensor

    def __init__(self, target: Model) -> None:
        super().__init__()
        config = target.config
        self.fc = nn.Linear(len(LAYERS) * config.dim, config.dim, bias=False)
        self.blk = nn.ModuleList([Layer(config)])
        self.output_norm = nn.RMSNorm(config.dim, eps=config.eps)
        self.register_buffer("scale", torch.ones(len(LAYERS) * config.dim))
        self.register_buffer("cos", target.cos.float(), persistent=False)
        self.register_buffer("sin", target.sin.float(), persistent=False)

    def begin(self, target: Model, inputs: Tensor) -> None:
        """As the target's last layer, which reads what that layer reads; inputs: [tokens, numbers]."""
        n, last, layer = target.config.dim, target.blk[-1], self.blk[0]
        rms = inputs.float().square().mean(0).sqrt()
        self.scale.copy_(1 / rms)
        size = float(rms[-n:].mean())
        with torch.no_grad():
            for name, value in last.state_dict().items():  # of wide ones, the half that reads states
                layer.get_parameter(name)[..., -value.shape[-1] :] = value
            layer.attn_norm.weight.copy_(target.blk[0].attn_norm.weight)
            layer.attn_norm_2.weight.copy_(last.attn_norm.weight)
            self.output_norm.weight.copy_(target.output_norm.weight)
            for each in (layer.attn_output, layer.ffn_down):
                each.weight /= size
            self.fc.weight *= 0.1
            self.fc.weight[:, -n:] += torch.diag(rms[-n:] / size)

    def forward(self, inputs: Tensor, embedded: Tensor) -> Iterator[Tensor]:
        """For each step [batch, time, dim], which the output matrix multiplies.

        At index i, step s predicts token i + s + 2 of the text; `inputs` are the target's.
        """
        states, read, n_time = self.fc(inputs * self.scale), [], inputs.shape[1]
        for step in range(N_STEPS):
            embedded = embedded.roll(-1, 1)  # the last ones are of no use
            turn = self.cos[step : step + n_time], self.sin[step : step + n_time]
            states = self.blk[0].step(embedded, states, *turn, read)
            yield self.output_norm(states)


def _softmax(states: Tensor, head: Tensor) -> Tensor:
    return (states.bfloat16() @ head.T).float().div_(TEMPERATURE).softmax(-1)


class Lesson:
    """A batch, and what is needed of the target for it."""

    def __init__(self, rows: list[Row], target: Model) -> None:
        self.batch = Batch.of(rows, "cpu")
        self.n_used = 0
        with torch.inference_mode():
            states = all_states(target, self.batch.ids)
        self.inputs = torch.cat([states[layer - 1] for layer in LAYERS], -1).bfloat16().clone()
        self.wanted = states[-1].bfloat16().clone()


class Lessons:
    """All of them; those that were used least come first, so that new ones catch up."""

    def __init__(self, folder: Path, n_tokens: int, seed: int, target: Model) -> None:
        self._folder, self._n_tokens, self._target = folder, n_tokens, target
        self._rng = np.random.default_rng(seed)
        self._read: set[Path] = set()
        self._waiting: list[list[Row]] = []
        self._counts = np.zeros(target.config.vocab, np.int64)
        self._all: list[Lesson] = []
        self.held_out: list[Lesson] = []

    def refresh(self) -> None:
        for path in sorted(set(self._folder.glob("*.npz")) - self._read):
            self._read.add(path)
            rows = read_rows(path)
            for row in rows:
                np.add.at(self._counts, row.ids, 1)
            held_out = [row for row in rows if row.question % _HELD_OUT_EVERY == 0]
            self.held_out += [Lesson(each, self._target) for each in in_batches(held_out, self._n_tokens)]
            learned = [row for row in rows if row.question % _HELD_OUT_EVERY]
            self._waiting += in_batches(learned, self._n_tokens)

    @property
    def known(self) -> Tensor:
        """The most frequent tokens, in ascending order."""
        return torch.from_numpy(np.sort(np.argsort(-self._counts, kind="stable")[:N_KNOWN]))

    def draw(self) -> Lesson:
        self.refresh()
        if self._waiting:
            self._all.append(Lesson(self._waiting.pop(self._rng.integers(len(self._waiting))), self._target))
            return self._all[-1]
        minimum = min(each.n_used for each in self._all)
        fresh = [each for each in self._all if each.n_used == minimum]
        return fresh[self._rng.integers(len(fresh))]


class Trainer:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        torch.manual_seed(arguments.seed)
        torch.set_num_threads(arguments.threads)
        target = load_target(arguments.target)
        self._embedding = target.token_embd.weight
        self._head = Head(target)
        reader = to_device(load_target(arguments.target), "cpu")
        self._lessons = Lessons(arguments.answers, arguments.tokens, arguments.seed, reader)
        state: dict[str, Any] = torch.load(arguments.out) if arguments.out.exists() else {}
        self._step, self._n_tokens = state.get("step", 0), state.get("tokens", 0)
        self._seconds_before = state.get("seconds", 0.0)
        self._lessons.refresh()
        if state:
            self._head.load_state_dict(state["head"])
        else:
            lesson = self._lessons.draw()
            self._head.begin(target, lesson.inputs[:, _N_FIRST:].flatten(0, 1))
        matrices = [each for each in self._head.parameters() if is_matrix(each)]
        norms = [each for each in self._head.parameters() if not is_matrix(each)]
        groups = [{"params": matrices, "weight_decay": 0.02}, {"params": norms, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(groups, lr=arguments.lr, betas=(0.9, 0.95), fused=True)
        if state:
            self._optimizer.load_state_dict(state["optimizer"])
        self._began = time.time()

    def run(self) -> None:
        shown, saved = [], time.time()
        while (done := self._seconds() / (60 * self._arguments.minutes)) < 1:
            shown.append(self._learn(self._lessons.draw(), done))
            if self._step % _REPORT_EVERY == 0:
                print(self._step, self._n_tokens, np.mean(shown, 0).round(3).tolist(), flush=True)
                shown = []
            if time.time() - saved > _SAVE_EVERY:
                self._save()
                saved = time.time()
        self._save()

    def _learn(self, lesson: Lesson, done: float) -> list[float]:
        """The total variation of each step: how many of its drafts would be rejected."""
        warm, cosine = min(1.0, (self._step + 1) / _WARMUP), 0.5 * (1 + math.cos(math.pi * done))
        for group in self._optimizer.param_groups:
            group["lr"] = self._arguments.lr * warm * (_LAST_SHARE + (1 - _LAST_SHARE) * cosine)
        with torch.autocast("cpu", torch.bfloat16):
            drafted = self._drafted(lesson)
            share = max(0.0, 1 - done / _STATES_UNTIL)
            slopes, missed = self._slopes(lesson, [each.detach() for each in drafted], share)
        torch.autograd.backward(drafted, slopes)
        torch.nn.utils.clip_grad_norm_(self._head.parameters(), _MAX_GRADIENT)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._step += 1
        self._n_tokens += lesson.batch.ids.numel()
        lesson.n_used += 1
        return missed

    def _drafted(self, lesson: Lesson) -> list[Tensor]:
        """The states of each step, [rows x time, dim]."""
        embedded = self._embedding[lesson.batch.ids]
        return [each.flatten(0, 1) for each in self._head(lesson.inputs.float(), embedded)]

    def _slopes(
        self, lesson: Lesson, drafted: list[Tensor], share_of_states: float
    ) -> tuple[list[Tensor], list[float]]:
        """The gradient of the loss with respect to each step's states, and the total variation.

        A distribution is large, so a few at a time are made, and none is kept for a backward pass.
        """
        batch, known = lesson.batch, self._embedding[self._lessons.known].bfloat16()
        slopes, missed = [torch.zeros_like(each) for each in drafted], torch.zeros(len(drafted))
        weights = batch.answered + ~batch.answered * _PROMPT_SHARE
        weights /= weights.sum()
        for at, weight in zip(batch.taught.split(_AT_ONCE), weights[:, None].split(_AT_ONCE), strict=True):
            goal = lesson.wanted.flatten(0, 1)[at]
            wanted, length = _softmax(goal, known), goal.float().square().sum(-1, keepdim=True)
            for step, states in enumerate(drafted):
                within = at % batch.ids.shape[1] > step
                places = at[within] - 1 - step
                difference = _softmax(states[places], known) - wanted[within]
                missed[step] += (difference.abs().sum(-1, keepdim=True) * weight[within]).sum() / 2
                slope = (difference / TEMPERATURE).bfloat16() @ known
                slope += share_of_states * 2 * (states[places] - goal[within]) / length[within]
                slopes[step][places] = (slope * weight[within] * _SHARE_OF_STEP**step).to(states.dtype)
        return slopes, missed.tolist()

    @torch.no_grad()
    def _evaluate(self) -> list[float]:
        """Greedy answers that were held out: how often the first tokens of a draft are all the target's."""
        rows = self._embedding[self._lessons.known]
        right: list[list[Tensor]] = [[] for _ in range(N_STEPS)]
        for lesson in self._lessons.held_out:
            wanted = (lesson.wanted.flatten(0, 1).float() @ self._embedding.T).argmax(-1)
            good = torch.ones_like(wanted, dtype=torch.bool)
            at = lesson.batch.taught[lesson.batch.answered & lesson.batch.greedy]
            for step, states in enumerate(self._drafted(lesson)):
                good &= self._lessons.known[(states @ rows.T).argmax(-1)] == wanted.roll(-1 - step)
                right[step].append(good[at[at % lesson.batch.ids.shape[1] >= N_STEPS] - N_STEPS])
        return [round(float(torch.cat(each).float().mean()), 4) for each in right if each]

    def _seconds(self) -> float:
        return float(self._seconds_before + time.time() - self._began)

    def _save(self) -> None:
        state = {
            "head": self._head.state_dict(),
            "known": self._lessons.known,
            "step": self._step,
            "tokens": self._n_tokens,
            "seconds": self._seconds(),
            "optimizer": self._optimizer.state_dict(),
        }
        save(self._arguments.out, state)
        print("held out", self._evaluate(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--target", type=Path, required=True)
    add("--answers", type=Path, required=True)
    add("--out", type=Path, required=True)
    add("--minutes", type=float, required=True, help="of the whole schedule, with pauses")
    add("--tokens", type=int, default=1024, help="in a batch")
    add("--lr", type=float, default=1e-3)
    add("--seed", type=int, default=1)
    add("--threads", type=int, default=1)
    Trainer(parser.parse_args()).run()


if __name__ == "__main__":
    main()
