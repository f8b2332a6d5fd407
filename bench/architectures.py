"""Architectures to try one after the other, each as a tiny random model, and what a run of them all says."""

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import table
from bench.tiny_models import ArchitectureError, TinyModel, write_tiny_model

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
ARCHITECTURES = tuple(_NAMES.split())
"""All kinds of memory: attention over the whole text, sliding windows, recurrent states with rollback and
without. Of others llama.cpp writes no file, or not from these metadata, or aborts when it decodes. RWKV 7 is
left out because with random weights it amplifies the last bits, plamo2 because llama.cpp computes other
logits where a pass has several tokens of several sequences, Chameleon because llama.cpp expects its 8,192
image tokens in every vocabulary.
"""


def rows_of(models: Iterable[TinyModel], try_one: Callable[[str, Path], Iterable[Row]]) -> Iterator[Row]:
    """The rows that `try_one(architecture, path)` yields for each model, also on stderr.

    A model that llama.cpp does not make, or with which nothing can be tried, is left out and says why.
    """
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            path = Path(folder) / f"{model.architecture}.gguf"
            try:
                write_tiny_model(model, path)
                for row in try_one(model.architecture, path):
                    print(row, file=sys.stderr)
                    yield row
            except ArchitectureError as error:
                print(f"{model.architecture}: {error}", file=sys.stderr)
            path.unlink(missing_ok=True)


def finish(part: str, title: str, rows: Sequence[Row], columns: table.Columns) -> None:
    """Print a table, then a line of JSON; exit with 1 if anything was wrong."""
    table.show(title, rows, columns)
    print(json.dumps({"part": part, "rows": rows}))
    if any(row["n_wrong"] or row.get("n_dead") for row in rows):
        sys.exit(1)
