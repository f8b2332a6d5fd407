"""Write the draft model as GGUF: matrices with 4 bits a weight, tokenizer and settings of the target's file.

python export.py --target smollm2-135m.gguf --ckpt draft.pt --out smollm2-draft.gguf

"""

import argparse
from pathlib import Path

import numpy as np
import torch
from four_bits import decode, encode
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType, ReaderField

_NOT_COPIED = ("GGUF.", "general.", "llama.block_count")
_KIND = GGMLQuantizationType.IQ4_NL


def write(target: Path, weights: dict[str, torch.Tensor], n_layers: int, out: Path) -> None:
    """The architecture and the tokenizer are the target's, `weights` and the number of layers are given."""
    reader = GGUFReader(target)
    writer = GGUFWriter(out, "llama")
    writer.add_name("SmolLM2-135M-Instruct draft")
    writer.add_description(
        f"Draft model for SmolLM2-135M-Instruct: {n_layers} of its 30 layers, distilled on what it answers"
    )
    writer.add_license("apache-2.0")
    writer.add_block_count(n_layers)
    writer.add_file_type(LlamaFileType.MOSTLY_IQ4_NL)
    writer.add_quantization_version(2)
    for key, entry in reader.fields.items():
        if not key.startswith(_NOT_COPIED):
            copy_field(writer, entry)
    for name, value in weights.items():
        values = value.float().numpy()
        if values.ndim == 1:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, encode(values), raw_dtype=_KIND)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def copy_field(writer: GGUFWriter, field: ReaderField) -> None:
    kind, *items = field.types
    writer.add_key_value(field.name, field.contents(), kind, sub_type=items[-1] if items else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--ckpt", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    state = torch.load(arguments.ckpt, weights_only=True)
    write(arguments.target, state["model"], state["config"]["layers"], arguments.out)
    for name in ("token_embd.weight", "blk.0.ffn_up.weight"):
        values = state["model"][name].numpy()
        error = np.linalg.norm(decode(encode(values)) - values) / np.linalg.norm(values)
        print(f"{name}: relative rounding error {error:.4f}")
    print(f"{arguments.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
