"""Train the draft model: some layers of the target, taught by what the target answered.

    python distil.py --target smollm2-135m.gguf --answers answers --out draft.pt --minutes 90 \
        --layers 0 11 17 20 23 29 --matched 2 16 18 21 24 [--device cuda --tokens 16384]

Embedding and head (tied) stay the target's, rounded as in the file. The target reads each batch, too. Three
losses:

* the states after the draft's layers are to be the target's after the layers `matched` (the last: after the
  norm). They tell much more about each token than the next one does; their share goes to zero in the first
  half;
* the Kullback-Leibler divergence of both models' distributions at temperature 0.8 (`divergence.py`);
* instead of it, in the last part of the schedule, the total variation: the accepted fraction depends on it.

In the last part, each step is computed with the weights as the file will have them, in 4 bits; its gradient
changes the exact ones.

It goes on from `out` if that is there. Answers that are written meanwhile are used.
"""

import argparse
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from checkpoint import save
from divergence import Goal, compare
from model import Config, Model, is_matrix
from numpy.typing import NDArray
from rounding import rounded
from target import load_target, to_device
from torch import Tensor

TEMPERATURE = 0.8
_LAST_SHARE = 0.03  # of the learning rate
_MAX_GRADIENT = 1.0
_CHAT_BEGINS, _N_SYSTEM = 1, 21  # <|im_start|>, and how many tokens the system message takes
_PROMPT_SHARE = 0.3  # how much a token of a prompt counts, compared with one of an answer
_HELD_OUT_EVERY = 64  # questions of which one is not learned from
_N_HELD_OUT = 256  # rows, on a GPU
_N_HELD_OUT_ON_CPU = 32
_BATCHES_AT_ONCE = 32  # that are made of the rows that were used least
_TYPICAL_LENGTH = 128
_SAVE_EVERY = 60.0  # seconds
_LATEST_BEGIN = 0.4  # part of the time after which it begins with the answers there are


class Row(NamedTuple):
    """One answer with its prompt."""

    ids: NDArray[np.uint16]
    n_prompt: int
    temperature: float
    question: int

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
    greedy: Tensor
    """Which of them are of answers with the likeliest tokens, [taught]."""
    real: Tensor
    """Indices into rows x time that are not padding."""

    @classmethod
    def of(cls, rows: list[Row], device: str) -> "Batch":
        lengths = np.array([len(row.ids) - 1 for row in rows])
        ids = np.zeros((len(rows), lengths.max()), np.int64)
        for i, row in enumerate(rows):
            ids[i, : lengths[i]] = row.ids[:-1]
        place = np.arange(lengths.max())[None]
        real = place < lengths[:, None]
        taught = real & (place >= np.array([[row.n_first] for row in rows]))
        answered = place >= np.array([[row.n_prompt - 1] for row in rows])
        greedy = np.broadcast_to(np.array([[row.temperature == 0] for row in rows]), real.shape)
        arrays = ids, np.flatnonzero(taught), answered[taught], greedy[taught], np.flatnonzero(real)
        return cls(*(_to_device(torch.from_numpy(each), device) for each in arrays))


def _to_device(values: Tensor, device: str) -> Tensor:
    """Without waiting for what the device does meanwhile."""
    return values if device == "cpu" else values.pin_memory().to(device, non_blocking=True)


def read_rows(path: Path) -> list[Row]:
    with np.load(path) as file:
        data = {name: file[name] for name in file.files}
    ids = np.split(data["ids"], np.cumsum(data["lengths"])[:-1])
    columns = (data[name].tolist() for name in ("prompts", "temperatures", "questions"))
    return [Row(*row) for row in zip(ids, *columns, strict=True)]


def in_batches(rows: list[Row], n_tokens: int) -> list[list[Row]]:
    """Rows of similar length together."""
    batches, chosen = [], []
    for row in sorted(rows, key=lambda row: len(row.ids)):
        chosen.append(row)
        if len(chosen) * len(row.ids) >= n_tokens:
            batches.append(chosen)
            chosen = []
    return [*batches, chosen] if chosen else batches


class Lessons:
    """Batches of similar length, in a random order, endlessly; new files are read after each pass."""

    def __init__(self, folder: Path, n_tokens: int, seed: int, device: str) -> None:
        self._folder, self._n_tokens, self._device = folder, n_tokens, device
        self._rng = np.random.default_rng(seed)
        self._read: set[Path] = set()
        self._rows: list[Row] = []
        self._held_out: list[Row] = []

    @property
    def n_rows(self) -> int:
        return len(self._rows)

    def refresh(self) -> None:
        for path in sorted(set(self._folder.glob("*.npz")) - self._read):
            self._read.add(path)
            for row in read_rows(path):
                (self._rows if row.question % _HELD_OUT_EVERY else self._held_out).append(row)

    def held_out(self) -> list[Batch]:
        rows = self._held_out[: _N_HELD_OUT_ON_CPU if self._device == "cpu" else _N_HELD_OUT]
        return [Batch.of(each, self._device) for each in in_batches(rows, self._n_tokens)]

    def __iter__(self) -> Iterator[Batch]:
        n_used = np.zeros(0, np.int64)
        n_rows = _BATCHES_AT_ONCE * self._n_tokens // _TYPICAL_LENGTH
        while True:  # those that were used least come first, so that new ones catch up
            self.refresh()
            n_used = np.concatenate([n_used, np.zeros(len(self._rows) - len(n_used), np.int64)])
            order = np.lexsort([self._rng.random(len(n_used)), n_used])[:n_rows]
            n_used[order] += 1
            batches = in_batches([self._rows[i] for i in order], self._n_tokens)
            batches = batches[:-1] or batches  # the last one may be small
            for i in self._rng.permutation(len(batches)):
                yield Batch.of(batches[i], self._device)


class Objective:
    """What is minimized, of one batch."""

    def __init__(self, target: Model, matched: list[int]) -> None:
        self._target, self._matched = target, matched
        self._target_head = target.token_embd.weight.float()

    def __call__(
        self, model: Model, batch: Batch, share_of_states: float, share_of_variation: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            states = [each.flatten(0, 1) for each in all_states(self._target, batch.ids)]
            wanted = [states[i].float() for i in (*self._matched, -1)]
        drafted = [each.flatten(0, 1) for each in all_states(model, batch.ids)]
        weights = batch.answered + ~batch.answered * _PROMPT_SHARE
        goal = Goal(self._target_head, model.token_embd.weight, TEMPERATURE, share_of_variation)
        compared = compare(drafted[-1][batch.taught], wanted[-1][batch.taught], weights, goal)
        n_answered = batch.answered.sum()
        loss, shown = compared.loss, {
            "kl": (compared.divergence * batch.answered).sum() / n_answered,
            "overlap": (compared.overlap * batch.answered).sum() / n_answered,
            "same": (compared.same & batch.answered).sum() / n_answered,
        }  # fmt: skip
        if share_of_states:
            errors = torch.stack(
                [_error(a[batch.real], b[batch.real]) for a, b in zip(drafted, wanted, strict=True)]
            )
            loss = loss + share_of_states * errors.sum()
            shown |= {f"e{i}": error.detach() for i, error in enumerate(errors)}
        return loss, shown

    @torch.no_grad()
    def evaluate(self, model: Model, batches: list[Batch]) -> dict[str, float]:
        """How often the likeliest tokens agree in greedy answers; the overlap of distributions in others."""
        goal = Goal(self._target_head, model.token_embd.weight, TEMPERATURE)
        same, overlap = [], []
        for batch in batches:
            at = batch.taught[batch.answered]
            drafted, wanted = (
                all_states(each, batch.ids)[-1].flatten(0, 1)[at].float() for each in (model, self._target)
            )
            compared = compare(drafted, wanted, torch.ones_like(at, dtype=torch.float), goal)
            greedy = batch.greedy[batch.answered]
            same.append(compared.same[greedy].float())
            overlap.append(compared.overlap[~greedy])
        return {
            "same": round(float(torch.cat(same).mean()), 4),
            "overlap": round(float(torch.cat(overlap).mean()), 4),
        }


def _error(states: Tensor, wanted: Tensor) -> Tensor:
    """The mean squared error, relative to each state's length."""
    return ((states - wanted).square().sum(-1) / wanted.square().sum(-1).clamp(min=1.0)).mean()


def all_states(model: Model, ids: Tensor) -> list[Tensor]:
    """After each layer but the last, then what the head multiplies: [batch, time, dim]."""
    x = model.token_embd(ids)
    cos, sin = model.cos[: ids.shape[1]], model.sin[: ids.shape[1]]
    states = [x := block(x, cos, sin) for block in model.blk]
    return [*states[:-1], model.output_norm(x)]


def prune(target: Model, layers: list[int], device: str) -> Model:
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
    model.load_state_dict(weights)
    embedding = model.to(device).token_embd.weight.requires_grad_(requires_grad=False)
    embedding.copy_(rounded([embedding])[0])
    return model


@contextmanager
def as_in_the_file(matrices: list[Tensor]) -> Iterator[None]:
    """Within it, they are as the file will have them."""
    exact = [each.detach().clone() for each in matrices]
    _set(matrices, rounded(matrices))
    try:
        yield
    finally:
        _set(matrices, exact)


def _set(matrices: list[Tensor], values: list[Tensor]) -> None:
    for each, value in zip(matrices, values, strict=True):
        each.data.copy_(value)


class Trainer:
    """One run, from the target's layers or from the checkpoint `out`."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._began = time.time()
        self._arguments = arguments
        torch.manual_seed(arguments.seed)
        torch.set_num_threads(arguments.threads)
        torch.set_float32_matmul_precision("high")
        target = load_target(arguments.target)
        state: dict[str, Any] = {}
        if arguments.out.exists():
            state = torch.load(arguments.out, weights_only=True)
            self._model = Model(Config(**state["config"])).to(arguments.device)
            self._model.load_state_dict(state["model"])
            self._model.token_embd.weight.requires_grad_(requires_grad=False)
        else:
            self._model = prune(target, arguments.layers, arguments.device)
        self._step, self._n_tokens = state.get("step", 0), state.get("tokens", 0)
        self._seconds_before = state.get("seconds", 0.0)
        # Only matrices decay: the other weights scale what goes into them.
        trained = [each for each in self._model.parameters() if each.requires_grad]
        self._matrices = [each for each in trained if is_matrix(each)]
        self._optimizer = torch.optim.AdamW(
            [
                {"params": self._matrices, "weight_decay": 0.02},
                {"params": [each for each in trained if not is_matrix(each)], "weight_decay": 0.0},
            ],
            lr=arguments.lr,
            betas=(0.9, 0.95),
            fused=True,
        )
        if state:
            self._optimizer.load_state_dict(state["optimizer"])
        self._objective = Objective(to_device(target, arguments.device), arguments.matched)
        self._lessons = Lessons(
            arguments.answers, arguments.tokens, arguments.seed + self._step, arguments.device
        )

    def run(self) -> None:
        arguments = self._arguments
        self._wait()
        waited, self._began = time.time() - self._began, time.time()
        length = 60 * arguments.minutes - waited
        print("parameters", self._model.n_parameters(), self._evaluate(), flush=True)
        shown: list[dict[str, Tensor]] = []
        saved = time.time()
        for batch in self._lessons:
            if (done := self._seconds() / length) >= 1:
                break
            shown.append(self._learn(batch, done))
            if self._step % arguments.report == 0:
                means = {name: float(torch.stack([i[name] for i in shown]).mean()) for name in shown[-1]}
                print(
                    f"step {self._step} tokens {self._n_tokens / 1e6:.3f}M rows {self._lessons.n_rows}"
                    f" minutes {self._seconds() / 60:.2f}",
                    {name: round(mean, 3) for name, mean in means.items()},
                    flush=True,
                )
                shown = []
                if time.time() - saved > _SAVE_EVERY:
                    self._save()
                    print(self._evaluate(), flush=True)
                    saved = time.time()
        self._save()
        print("end", self._step, self._n_tokens, self._seconds() / 60, self._evaluate())
        with as_in_the_file(self._matrices):
            print("as in the file", self._evaluate(), flush=True)

    def _wait(self) -> None:
        """Until there are enough answers, some of them held out."""
        latest = self._began + _LATEST_BEGIN * 60 * self._arguments.minutes
        while True:
            self._lessons.refresh()
            n_enough = self._arguments.begin_with if time.time() < latest else 1
            if self._lessons.n_rows >= n_enough and self._lessons.held_out():
                return
            time.sleep(0.5)

    def _evaluate(self) -> dict[str, float]:
        return self._objective.evaluate(self._model, self._lessons.held_out())

    def _learn(self, batch: Batch, done: float) -> dict[str, Tensor]:
        arguments = self._arguments
        warm = min(1.0, (self._step + 1) / arguments.warmup)
        rate = arguments.lr * warm * (_LAST_SHARE + (1 - _LAST_SHARE) * 0.5 * (1 + math.cos(math.pi * done)))
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        states = max(0.0, 1 - done / arguments.states_until)
        variation = min(1.0, max(0.0, (done - arguments.variation_from) / 0.1))
        with as_in_the_file(self._matrices) if done >= arguments.rounded_from else nullcontext():
            loss, shown = self._objective(self._model, batch, states, variation)
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), _MAX_GRADIENT)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._step += 1
        self._n_tokens += batch.ids.numel()
        return {**shown, "norm": norm}

    def _seconds(self) -> float:
        return self._seconds_before + time.time() - self._began

    def _save(self) -> None:
        state = {
            "model": {name: value.cpu() for name, value in self._model.state_dict().items()},
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
    add("--minutes", type=float, required=True, help="of the whole schedule, with loading and waiting")
    add("--device", default="cpu")
    add("--tokens", type=int, default=1024, help="in a batch")
    add("--begin-with", type=int, default=64, help="answers")
    add("--lr", type=float, default=1e-3)
    add("--warmup", type=int, default=20)
    add("--states-until", type=float, default=0.5, help="part of the schedule in which states are compared")
    add("--variation-from", type=float, default=0.6, help="part of the schedule after which the loss changes")
    add("--rounded-from", type=float, default=0.6, help="part of the schedule before weights are rounded")
    add("--report", type=int, default=20, help="steps")
    add("--seed", type=int, default=1)
    add("--threads", type=int, default=1)
    Trainer(parser.parse_args()).run()


if __name__ == "__main__":
    main()
