"""Train the draft model: some layers of the target, taught by what the target answered.

    python distil.py --target smollm2-135m.gguf --answers answers --out draft.pt --minutes 90 \
        --layers 0 11 17 20 23 29 --matched 2 16 18 21 24

Embedding and head (tied) stay the target's, rounded as in the file. Three losses:

* the states after the draft's layers are to be the target's after the layers `matched` (the last: after the
  norm). They tell much more about each token than the next one does; their share goes to zero in the first
  half;
* the Kullback-Leibler divergence of both models' distributions at temperature 0.8, over the tokens that are
  likely somewhere in the batch and some random ones, which costs a tenth of the whole vocabulary;
* instead of it, in the last part of the schedule, the total variation: the accepted fraction depends on it.

It goes on from `out` if that is there. Answers that are written meanwhile are used.
"""

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from answers import INNER
from checkpoint import save
from four_bits import decode, encode
from model import Config, Model, is_matrix
from target import load_target
from torch import Tensor

TEMPERATURE = 0.8
_N_RANDOM = 1024  # tokens of the vocabulary that are compared besides the likely ones
_N_LIKELY = 8  # of each position
_LAST_SHARE = 0.03  # of the learning rate
_MAX_GRADIENT = 1.0
_CHAT_BEGINS, _N_SYSTEM = 1, 21  # <|im_start|>, and how many tokens the system message takes
_PROMPT_SHARE = 0.3  # how much a token of a prompt counts, compared with one of an answer
_HELD_OUT = 32  # answers of the first file; its others are not used
_WEIGHT_OF_VARIATION = 4.0  # about as large a gradient as the divergence's
_WIDER = {np.dtype(np.uint16): np.int32}
"""What PyTorch computes with."""


@dataclass(frozen=True)
class Row:
    """One answer with its prompt."""

    ids: Tensor
    n_prompt: int
    temperature: float
    inner: Tensor
    hidden: Tensor
    top: Tensor

    @property
    def n_first(self) -> int:
        """Where the text begins to differ from others: all chats have the same system message."""
        return _N_SYSTEM if self.ids[0] == _CHAT_BEGINS else 0


@dataclass(frozen=True)
class Batch:
    ids: Tensor
    """[rows, time], padded with zeros."""
    taught: Tensor
    """Indices into rows x time after which both distributions are compared: all but the system message."""
    answered: Tensor
    """Which of them are followed by a token of the target's own, [taught]."""
    real: Tensor
    """Indices into rows x time that are not padding."""
    inner: Tensor
    """The target's states there, [real, kept layers, dim]."""
    last: Tensor
    """The target's states after the last norm there, [real, dim]."""
    hidden: Tensor
    """The same where it is taught, [taught, dim]."""
    top: Tensor
    """The target's likeliest tokens at each token of its own, [answered, 16]."""

    @classmethod
    def of(cls, rows: list[Row]) -> "Batch":
        n_time = max(len(row.ids) for row in rows) - 1
        ids = torch.zeros(len(rows), n_time, dtype=torch.long)
        taught, real, answered = [], [], []
        for i, row in enumerate(rows):
            n = len(row.ids) - 1
            ids[i, :n] = row.ids[:-1]
            real.append(torch.arange(n) + i * n_time)
            taught.append(real[-1][row.n_first :])
            answered.append(torch.arange(row.n_first, n) >= row.n_prompt - 1)
        return cls(
            ids,
            torch.cat(taught),
            torch.cat(answered),
            torch.cat(real),
            torch.cat([row.inner for row in rows]).float(),
            torch.cat([row.hidden for row in rows]).float(),
            torch.cat([row.hidden[row.n_first :] for row in rows]).float(),
            torch.cat([row.top for row in rows]).long(),
        )


def read_rows(path: Path) -> list[Row]:
    with np.load(path) as file:
        data = {
            name: torch.from_numpy(np.asarray(file[name], _WIDER.get(file[name].dtype)))
            for name in file.files
        }
    lengths, prompts = data["lengths"], data["prompts"]
    ids = data["ids"].split(lengths.tolist())
    inner, hidden = (data[name].split((lengths - 1).tolist()) for name in ("inner", "hidden"))
    top = data["top"].split((lengths - prompts).tolist())
    return [
        Row(*row)
        for row in zip(ids, prompts.tolist(), data["temperatures"].tolist(), inner, hidden, top, strict=True)
    ]


class Lessons:
    """Batches of similar length, in a random order, endlessly; new files are read after each pass."""

    def __init__(self, folder: Path, n_tokens: int, seed: int) -> None:
        self._folder, self._n_tokens = folder, n_tokens
        self._rng = np.random.default_rng(seed)
        self._files: dict[Path, list[Row]] = {}
        self.refresh()

    def refresh(self) -> None:
        for path in sorted(self._folder.glob("*.npz")):
            if path not in self._files:
                self._files[path] = read_rows(path)

    @property
    def held_out(self) -> list[Row]:
        return next(iter(self._files.values()))[:_HELD_OUT]

    def __iter__(self) -> Iterator[Batch]:
        n_used: dict[int, int] = {}
        while True:  # those that were used least come first, so that new ones catch up
            self.refresh()
            rows = [row for rows in list(self._files.values())[1:] for row in rows]
            order = sorted(self._rng.permutation(len(rows)), key=lambda i: n_used.get(i, 0))[:256]
            for i in order:
                n_used[i] = n_used.get(i, 0) + 1
            batches, chosen = [], []
            for i in sorted(order, key=lambda i: len(rows[i].ids)):
                chosen.append(rows[i])
                if sum(len(row.ids) for row in chosen) >= self._n_tokens:
                    batches.append(chosen)
                    chosen = []
            for i in self._rng.permutation(len(batches)):
                yield Batch.of(batches[i])


class Objective:
    """What is minimized, of one batch."""

    def __init__(self, target_head: Tensor, matched: list[int], seed: int) -> None:
        self._target_head = target_head
        self._places = [INNER.index(layer) for layer in matched]
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(
        self, model: Model, batch: Batch, share_of_states: float, share_of_variation: float
    ) -> tuple[Tensor, dict[str, float]]:
        *inner, last = (each.flatten(0, 1) for each in all_states(model, batch.ids))
        extra = torch.randint(len(self._target_head), (_N_RANDOM,), generator=self._generator)
        compared = torch.cat([batch.top[:, :_N_LIKELY].flatten(), batch.ids.flatten(), extra]).unique()
        wanted = (batch.hidden @ self._target_head[compared].T / TEMPERATURE).log_softmax(-1)
        head = model.token_embd.weight[compared]
        drafted = (last[batch.taught] @ head.T / TEMPERATURE).log_softmax(-1)
        divergence = (wanted.exp() * (wanted - drafted)).sum(-1)
        variation = (wanted.exp() - drafted.exp()).abs().sum(-1) / 2
        each = (1 - share_of_variation) * divergence + share_of_variation * _WEIGHT_OF_VARIATION * variation
        weights = batch.answered + ~batch.answered * _PROMPT_SHARE
        loss = (each * weights).sum() / weights.sum()
        same = wanted.argmax(-1) == drafted.argmax(-1)
        shown = {
            "kl": divergence[batch.answered].mean().item(),
            "overlap": 1 - variation[batch.answered].mean().item(),
            "same": same[batch.answered].float().mean().item(),
        }
        if share_of_states:
            errors = [
                _error(states[batch.real], batch.inner[:, place])
                for states, place in zip(inner, self._places, strict=True)
            ]
            errors.append(_error(last[batch.real], batch.last))
            loss = loss + share_of_states * torch.stack(errors).sum()
            shown |= {f"e{i}": error.item() for i, error in enumerate(errors)}
        return loss, shown


def _error(states: Tensor, wanted: Tensor) -> Tensor:
    """The mean squared error, relative to each state's length."""
    return ((states - wanted).square().sum(-1) / wanted.square().sum(-1).clamp(min=1.0)).mean()


def all_states(model: Model, ids: Tensor) -> list[Tensor]:
    """After each layer but the last, then what the head multiplies: [batch, time, dim]."""
    x = model.token_embd(ids)
    cos, sin = model.cos[: ids.shape[1]], model.sin[: ids.shape[1]]
    states = [x := block(x, cos, sin) for block in model.blk]
    return [*states[:-1], model.output_norm(x)]


def prune(target: Model, layers: list[int]) -> Model:
    """A model of these layers of the target, everything else its own."""
    model = Model(replace(target.config, layers=len(layers)))
    weights = {name: value for name, value in target.state_dict().items() if not name.startswith("blk.")}
    for new, old in enumerate(layers):
        prefix = f"blk.{old}."
        weights |= {
            f"blk.{new}.{name.removeprefix(prefix)}": value
            for name, value in target.state_dict().items()
            if name.startswith(prefix)
        }
    weights["token_embd.weight"] = torch.from_numpy(decode(encode(weights["token_embd.weight"].numpy())))
    model.load_state_dict(weights)
    model.token_embd.weight.requires_grad_(requires_grad=False)
    return model


@torch.no_grad()
def evaluate(model: Model, head: Tensor, rows: list[Row]) -> dict[str, float]:
    """How often the likeliest tokens agree in greedy texts; the overlap of whole distributions in others."""
    same, overlap = [], []
    for row in rows:
        batch = Batch.of([row])
        states = all_states(model, batch.ids)[-1][0, row.n_prompt - 1 :]
        wanted, drafted = batch.last[row.n_prompt - 1 :] @ head.T, states @ model.token_embd.weight.T
        if row.temperature == 0:
            same.append((wanted.argmax(-1) == drafted.argmax(-1)).float())
        else:
            p, q = ((i / row.temperature).softmax(-1) for i in (wanted, drafted))
            overlap.append(torch.minimum(p, q).sum(-1))
    return {"same": float(torch.cat(same).mean()), "overlap": float(torch.cat(overlap).mean())}


class Trainer:
    """One run, from the target's layers or from the checkpoint `out`."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        torch.manual_seed(arguments.seed)
        torch.set_num_threads(arguments.threads)
        target = load_target(arguments.target)
        self._target_head = target.token_embd.weight
        state: dict[str, Any] = {}
        if arguments.out.exists():
            state = torch.load(arguments.out, weights_only=True)
            self._model = Model(Config(**state["config"]))
            self._model.load_state_dict(state["model"])
            self._model.token_embd.weight.requires_grad_(requires_grad=False)
        else:
            self._model = prune(target, arguments.layers)
        self._step, self._n_tokens = state.get("step", 0), state.get("tokens", 0)
        self._seconds_before = state.get("seconds", 0.0)
        trained = [each for each in self._model.parameters() if each.requires_grad]
        self._optimizer = torch.optim.AdamW(
            [
                {"params": [each for each in trained if is_matrix(each)], "weight_decay": 0.02},
                {"params": [each for each in trained if not is_matrix(each)], "weight_decay": 0.0},
            ],
            lr=arguments.lr,
            betas=(0.9, 0.95),
            fused=True,
        )
        if state:
            self._optimizer.load_state_dict(state["optimizer"])
        self._objective = Objective(self._target_head, arguments.matched, arguments.seed + self._step)
        self._began = time.time()

    def run(self) -> None:
        arguments = self._arguments
        self._save()
        lessons = Lessons(arguments.answers, arguments.tokens, arguments.seed + self._step)
        print(
            "parameters",
            self._model.n_parameters(),
            evaluate(self._model, self._target_head, lessons.held_out),
            flush=True,
        )
        self._began = time.time()
        shown: list[dict[str, float]] = []
        for batch in lessons:
            if (done := self._seconds() / (60 * arguments.minutes)) >= 1:
                break
            shown.append(self._learn(batch, done))
            if self._step % arguments.report == 0:
                means = {name: round(float(np.mean([each[name] for each in shown])), 3) for name in shown[0]}
                print(
                    f"step {self._step} tokens {self._n_tokens / 1e6:.3f}M"
                    f" minutes {self._seconds() / 60:.1f} {means}",
                    flush=True,
                )
                shown = []
            if self._step % (10 * arguments.report) == 0:
                self._save()
                print(evaluate(self._model, self._target_head, lessons.held_out), flush=True)
        self._save()
        print(
            "end",
            self._step,
            self._n_tokens,
            self._seconds() / 60,
            evaluate(self._model, self._target_head, lessons.held_out),
        )

    def _learn(self, batch: Batch, done: float) -> dict[str, float]:
        arguments = self._arguments
        warm = min(1.0, (self._step + 1) / arguments.warmup)
        rate = arguments.lr * warm * (_LAST_SHARE + (1 - _LAST_SHARE) * 0.5 * (1 + math.cos(math.pi * done)))
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        states = max(0.0, 1 - done / arguments.states_until)
        variation = min(1.0, max(0.0, (done - arguments.variation_from) / 0.1))
        loss, shown = self._objective(self._model, batch, states, variation)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), _MAX_GRADIENT)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._step += 1
        self._n_tokens += batch.ids.numel()
        return {**shown, "norm": float(norm)}

    def _seconds(self) -> float:
        return self._seconds_before + time.time() - self._began

    def _save(self) -> None:
        state = {
            "model": self._model.state_dict(),
            "config": self._model.config.to_dict(),
            "step": self._step,
            "tokens": self._n_tokens,
            "seconds": self._seconds(),
            "optimizer": self._optimizer.state_dict(),
        }
        save(self._arguments.out, state)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--target", type=Path, required=True)
    add("--answers", type=Path, required=True)
    add("--layers", type=int, nargs="+", required=True, help="of the target, to begin with")
    add(
        "--matched",
        type=int,
        nargs="+",
        required=True,
        help="layers whose states the draft's, but the last, learn",
    )
    add("--out", type=Path, required=True)
    add("--minutes", type=float, required=True, help="of the whole schedule")
    add("--tokens", type=int, default=1024, help="in a batch")
    add("--lr", type=float, default=1e-3)
    add("--warmup", type=int, default=20)
    add("--states-until", type=float, default=0.5, help="part of the schedule in which states are compared")
    add("--variation-from", type=float, default=0.6, help="part of the schedule after which the loss changes")
    add("--report", type=int, default=20, help="steps")
    add("--seed", type=int, default=1)
    add("--threads", type=int, default=1)
    Trainer(parser.parse_args()).run()


if __name__ == "__main__":
    main()
