"""Write a trained model as GGUF (arch "llama"), and check it against PyTorch.

    python export.py --ckpt ckpt/target.pt --out out/target-f16.gguf --type f16
    python export.py --ckpt ckpt/target.pt --check out/target-f16.gguf

The rotary embedding in model.py rotates neighbouring pairs, which is what llama.cpp does for arch "llama",
so that the q and k weights are written as they are.
"""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
from chatml import CHAT_TEMPLATE
from check import check
from checkpoint import load
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType
from model import Config, Model

_TYPES = {
    "f32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "f16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ckpt", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, default=Path("data/tokenizer.json"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--type", choices=sorted(_TYPES), default="f16")
    parser.add_argument("--name", default="spec-demo")
    parser.add_argument("--role", default="target")
    parser.add_argument("--check", type=Path)
    arguments = parser.parse_args()
    model, _ = load(arguments.ckpt)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        names = {"name": arguments.name, "role": arguments.role}
        write(model, arguments.tokenizer, arguments.out, arguments.type, **names)
    if arguments.check:
        check(model, arguments.tokenizer, arguments.check)


def write(model: Model, tokenizer: Path, out: Path, kind: str, *, name: str, role: str) -> None:
    """Matrices in the type `kind`, vectors in full precision."""
    quantization, file_type = _TYPES[kind]
    writer = GGUFWriter(out, "llama")
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(name)
    writer.add_description(
        f"{role} model of a small pair for speculative decoding, trained from scratch on synthetic chats"
    )
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _add_shape(writer, model.config)
    _add_tokenizer(writer, tokenizer, model.config.vocab)
    _add_weights(writer, model, quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_shape(writer: GGUFWriter, config: Config) -> None:
    writer.add_vocab_size(config.vocab)
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.dim)
    writer.add_block_count(config.layers)
    writer.add_feed_forward_length(config.ffn)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_layer_norm_rms_eps(config.eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_base)


def _add_tokenizer(writer: GGUFWriter, path: Path, n_vocab: int) -> None:
    """The tokens in the order of their ids, the merges, the special tokens and the chat format."""
    spec = json.loads(path.read_text(encoding="utf-8"))
    special = {token["content"] for token in spec["added_tokens"]}
    by_id = {i: token for token, i in spec["model"]["vocab"].items()}
    by_id |= {token["id"]: token["content"] for token in spec["added_tokens"]}
    tokens = [by_id[i] for i in range(n_vocab)]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in spec["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2" if spec["pre_tokenizer"]["type"] == "ByteLevel" else "qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if each in special else TokenType.NORMAL for each in tokens])
    writer.add_token_merges(merges)
    end = tokens.index("<|im_end|>")
    writer.add_eos_token_id(end)
    writer.add_eot_token_id(end)
    writer.add_pad_token_id(tokens.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _add_weights(writer: GGUFWriter, model: Model, quantization: GGMLQuantizationType) -> None:
    for name, value in model.state_dict().items():
        weights = value.float().numpy()
        if weights.ndim == 1 or quantization == GGMLQuantizationType.F32:
            writer.add_tensor(name, weights.astype(np.float32))
        elif quantization == GGMLQuantizationType.F16:
            writer.add_tensor(name, weights.astype(np.float16))
        else:
            writer.add_tensor(name, gguf.quants.quantize(weights, quantization), raw_dtype=quantization)


if __name__ == "__main__":
    main()
