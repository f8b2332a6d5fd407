"""`python -m bench caches`: are logits right, whatever traffic has left in the caches?

For each architecture a tiny random model in f32 serves random traffic (`bench.traffic`), once with one pool
of cells for all slots and once with cells of its own for each slot. Exit status 1 if a logit differs from a
fresh evaluation by more than the bound.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from bench import table
from bench.options import listed
from bench.tiny_models import ArchitectureError, TinyModel, write_tiny_model
from bench.traffic import Traffic, TrafficRun
from shared.llama.memory_plan import plan_memory
from shared.settings.model_options import CacheType, ModelOptions

ARCHITECTURES = (
    *(
        "llama",
        "deci",
        "falcon",
        "grok",
        "gpt2",
        "gptneox",
        "mpt",
        "baichuan",
        "starcoder",
        "refact",
        "bloom",
    ),
    *(
        "stablelm",
        "qwen",
        "qwen2",
        "qwen2moe",
        "qwen2vl",
        "qwen3",
        "qwen3moe",
        "qwen3vl",
        "qwen3vlmoe",
        "phi2",
    ),
    *("phimoe", "plamo", "codeshell", "orion", "internlm2", "minicpm", "gemma", "starcoder2", "xverse"),
    *("command-r", "dbrx", "olmo", "olmoe", "openelm", "deepseek", "deepseek2", "chatglm", "glm4", "glm4moe"),
    *(
        "jais",
        "jais2",
        "nemotron",
        "exaone",
        "granite",
        "granitemoe",
        "chameleon",
        "bailingmoe",
        "bailingmoe2",
    ),
    *("dots1", "arcee", "ernie4_5", "ernie4_5-moe", "hunyuan-dense", "hunyuan-moe", "smollm3", "seed_oss"),
    *("minimax-m2", "pangu-embedded", "mistral3", "maincoder", "nanbeige"),
    *("gemma2", "gemma3", "cohere2", "cohere2moe", "exaone4", "exaone-moe", "olmo2", "plamo3", "gpt-oss"),
    *(
        "smallthinker",
        "laguna",
        "llama4",
        "afmoe",
        "muse-glimmer",
        "granite_swa",
        "mimo2",
        "spark2_5",
        "mellum",
    ),
    *("qwen35", "qwen35moe", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe"),
    *("qwen3next", "mamba", "mamba2", "granitehybrid", "falcon-h1", "jamba", "minimax-01"),
    "rwkv6",
)
"""All kinds of memory: attention over the whole text, sliding windows, recurrent states with rollback and
without. Of others llama.cpp writes no file, or not from these metadata, or aborts when it decodes. RWKV 7 is
left out because with random weights it amplifies the last bits, plamo2 because llama.cpp computes other
logits where a pass has several tokens of several sequences.
"""

_COLUMNS = {
    "architecture": ("architecture", ""),
    "cells": ("cells", ""),
    "n_compared": ("rows compared", "d"),
    "n_wrong": ("wrong", "d"),
    "n_lost": ("windows lost", "d"),
    "worst": ("largest difference", ".5f"),
    "spread": ("deviation of logits", ".2f"),
}


def main(arguments: Sequence[str]) -> None:
    """Print a table, then a line of JSON."""
    options = _parse(arguments)
    rows = list(_rows(options))
    table.show("logits after random traffic, against a fresh evaluation", rows, _COLUMNS)
    print(json.dumps({"part": "caches", "rows": rows}))
    if any(row["n_wrong"] for row in rows):
        sys.exit(1)


def _rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        for architecture in options.architectures:
            model = TinyModel(architecture, options.seed)
            try:
                path = write_tiny_model(model, Path(folder) / f"{architecture}.gguf")
            except ArchitectureError as error:
                print(error, file=sys.stderr)
                continue
            for kv_unified in (True, False):
                yield _row(options, architecture, path, kv_unified=kv_unified)
            if plan_memory(path, ModelOptions()).n_window:
                yield _row(options, architecture, path, kv_unified=True, swa_full=True)
            path.unlink()


def _row(
    options: argparse.Namespace, architecture: str, path: Path, *, kv_unified: bool, swa_full: bool = False
) -> dict[str, Any]:
    traffic = Traffic(
        path,
        seed=options.seed,
        n_slots=options.slots,
        n_ctx=options.ctx_size,
        kv_unified=kv_unified,
        cache_type=options.cache_type,
        swa_full=swa_full,
    )
    run = TrafficRun(traffic)
    comparison = run.run(options.comparisons)
    run.close()
    row = {
        "architecture": architecture,
        "cells": ("one pool" if kv_unified else "per slot") + (", --swa-full" if swa_full else ""),
        "n_compared": len(comparison.differences),
        "n_wrong": comparison.n_wrong(options.bound),
        "n_lost": run.n_windows_lost,
        "worst": comparison.worst,
        "spread": comparison.spread,
    }
    print(f"{architecture:14} {row['cells']}: {comparison.worst:.5f}", file=sys.stderr)
    return row


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench caches", description=__doc__.split("\n")[0])
    parser.add_argument("--architectures", type=listed(str), default=list(ARCHITECTURES))
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
