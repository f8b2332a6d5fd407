"""`python -m bench caches`: are logits right, whatever traffic has left in the caches?

For each architecture a tiny random model in f32 serves random traffic (`bench.traffic`), with one pool of
cells for all slots and with cells of its own for each slot, with room and cramped; where it can have heads
that draft (MTP), also with these. Exit status 1 if a logit differs from a fresh evaluation by more than the
bound, or if an engine dies.
"""

import argparse
import json
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

from bench import report
from bench.options import listed
from bench.tiny_models import WITH_HEADS, ArchitectureError, TinyModel, with_heads, write_tiny_model
from bench.traffic import Traffic, TrafficRun
from shared.llama.memory_plan import plan_memory
from shared.llama.mtp_heads import has_heads
from shared.settings.model_options import CacheType, ModelOptions

Row = dict[str, Any]

_NAMES = """
llama deci falcon grok gpt2 gptneox mpt baichuan starcoder refact bloom stablelm qwen qwen2 qwen2moe
qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe phi2 phimoe plamo codeshell orion internlm2 minicpm gemma
starcoder2 xverse command-r dbrx olmo olmoe openelm deepseek deepseek2 chatglm glm4 glm4moe jais
jais2 nemotron exaone granite granitemoe bailingmoe bailingmoe2 dots1 arcee ernie4_5 ernie4_5-moe
hunyuan-dense hunyuan-moe smollm3 seed_oss minimax-m2 pangu-embedded mistral3 maincoder nanbeige
gemma2 gemma3 cohere2 cohere2moe exaone4 exaone-moe olmo2 plamo3 gpt-oss smallthinker laguna llama4
afmoe muse-glimmer granite_swa mimo2 spark2_5 mellum qwen35 qwen35moe lfm2 lfm2moe nemotron_h
nemotron_h_moe qwen3next mamba mamba2 granitehybrid falcon-h1 jamba minimax-01 rwkv6
"""
_ARCHITECTURES = tuple(_NAMES.split())
"""All kinds of memory: attention over the whole text, sliding windows, recurrent states with rollback and
without. Of others llama.cpp writes no file, or not from these metadata, or aborts when it decodes. RWKV 7 is
left out because with random weights it amplifies the last bits, plamo2 because llama.cpp computes other
logits where a pass has several tokens of several sequences, Chameleon because llama.cpp expects its 8,192
image tokens in every vocabulary.
"""
_COLUMNS = {
    "architecture": ("architecture", ""),
    "cells": ("cells", ""),
    "n_compared": ("rows compared", "d"),
    "n_wrong": ("wrong", "d"),
    "n_dead": ("dead engines", "d"),
    "n_lost": ("windows lost", "d"),
    "worst": ("largest difference", ".5f"),
    "spread": ("deviation of logits", ".2f"),
}


def main(arguments: Sequence[str]) -> None:
    """Print a table, then a line of JSON."""
    options = _parse(arguments)
    rows = list(_rows_of_all(options))
    report.show("logits after random traffic, against a fresh evaluation", rows, _COLUMNS)
    print(json.dumps({"part": "caches", "rows": rows}))
    if any(row["n_wrong"] or row["n_dead"] for row in rows):
        sys.exit(1)


def _rows_of_all(options: argparse.Namespace) -> Iterator[Row]:
    """Rows, also on stderr. A model that llama.cpp does not make is left out and says why."""
    with tempfile.TemporaryDirectory() as folder:
        for model in _models(options):
            path = Path(folder) / f"{model.architecture}.gguf"
            try:
                write_tiny_model(model, path)
            except ArchitectureError as error:
                print(f"{model.architecture}: {error}", file=sys.stderr)
                continue
            for row in _rows(options, model.architecture, path):
                print(row, file=sys.stderr)
                yield row
            path.unlink()


def _models(options: argparse.Namespace) -> Iterator[TinyModel]:
    for architecture in options.architectures:
        yield TinyModel(architecture, options.seed)
        if architecture in WITH_HEADS:
            yield with_heads(architecture, options.seed)


def _rows(options: argparse.Namespace, architecture: str, path: Path) -> Iterator[Row]:
    usual = Traffic(
        path, seed=options.seed, n_slots=options.slots, n_ctx=options.ctx_size, cache_type=options.cache_type
    )
    ways = {"": usual, ", cramped": usual.cramped()}
    for (name, traffic), kv_unified in product(ways.items(), (True, False)):
        cells = ("one pool" if kv_unified else "per slot") + name
        yield _row(options, architecture, cells, replace(traffic, kv_unified=kv_unified))
    if plan_memory(path, ModelOptions()).n_window:
        yield _row(options, architecture, "one pool, --swa-full", replace(usual, swa_full=True))


def _row(options: argparse.Namespace, architecture: str, cells: str, traffic: Traffic) -> Row:
    run = TrafficRun(traffic)
    n_dead = 0
    try:
        run.run(options.comparisons)
    except Exception:  # noqa: BLE001 - whatever it is, it ends an engine
        traceback.print_exc()
        n_dead = 1
    run.close()
    return {
        "architecture": architecture,
        "cells": cells + (", heads" if has_heads(traffic.model) else ""),
        "n_compared": len(run.comparison.differences),
        "n_wrong": run.comparison.n_wrong(options.bound),
        "n_dead": n_dead,
        "n_lost": run.n_windows_lost,
        "worst": run.comparison.worst,
        "spread": run.comparison.spread,
    }


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench caches", description=__doc__.split("\n")[0])
    parser.add_argument("--architectures", type=listed(str), default=list(_ARCHITECTURES))
    parser.add_argument("--comparisons", type=int, default=1000, help="rows to compare in each run")
    parser.add_argument("--quick", action="store_true", help="compare 100 rows")
    parser.add_argument("--seed", type=int, default=1, help="of the weights and of the traffic")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--ctx-size", type=int, default=2048, help="cells of all slots together")
    parser.add_argument("--cache-type", choices=get_args(CacheType), default="f32", help="of keys and values")
    parser.add_argument("--bound", type=float, default=0.01, help="largest difference that is not wrong")
    options = parser.parse_args(arguments)
    if options.quick:
        options.comparisons = 100
    return options
