"""Write an EAGLE-3 head for llama.cpp: --target TARGET.gguf --ckpt eagle.pt --out eagle.gguf."""

import argparse
from pathlib import Path

import numpy as np
import torch
from eagle import LAYERS
from export import copy_field
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType, quants
from target import load_target
from torch import Tensor

_KIND = GGMLQuantizationType.Q8_0


def write(target: Path, head: dict[str, Tensor], known: Tensor, out: Path) -> None:
    """`head`: the state of an `eagle.Head`; `known`: the tokens it can draft, in ascending order."""
    model, fields = load_target(target), GGUFReader(target).fields
    config = model.config
    writer = GGUFWriter(out, "eagle3")
    writer.add_name("SmolLM2-135M-Instruct EAGLE-3")
    writer.add_license("apache-2.0")
    writer.add_context_length(int(fields["llama.context_length"].contents()))
    writer.add_embedding_length(config.dim)
    writer.add_block_count(1)
    writer.add_feed_forward_length(config.ffn)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_layer_norm_rms_eps(config.eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_base)
    writer.add_array("eagle3.target_layers", list(LAYERS))
    writer.add_uint32("eagle3.target_hidden_size", config.dim)
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(2)
    for key, field in fields.items():  # the head drafts in the target's vocabulary
        if key.startswith("tokenizer."):
            copy_field(writer, field)
    weights = dict(head)
    weights["fc.weight"] = weights["fc.weight"] * weights.pop("scale")
    weights["output.weight"] = model.token_embd.weight[known]
    for name, value in weights.items():
        values = value.float().numpy()
        if values.ndim == 1:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, quants.quantize(values, _KIND), raw_dtype=_KIND)
    writer.add_tensor("d2t", known.numpy().astype(np.int64))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--ckpt", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    state = torch.load(arguments.ckpt, weights_only=True)
    write(arguments.target, state["head"], state["known"], arguments.out)
    print(f"{arguments.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
