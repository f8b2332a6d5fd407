"""The target as a PyTorch model, and its tokenizer, both read from its GGUF file."""

from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader, quants
from model import Config, Model
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
_CHAT = (
    "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
)
_CONTROL = 3  # llama.cpp's type of tokens like <|im_end|>


def load_target(path: Path) -> Model:
    """All layers, dequantized to float32; what llama.cpp computes, up to its rounding of activations."""
    reader = GGUFReader(path)

    def of(key: str) -> int:
        return int(reader.fields[f"llama.{key}"].contents())

    config = Config(
        dim=of("embedding_length"),
        layers=of("block_count"),
        heads=of("attention.head_count"),
        kv_heads=of("attention.head_count_kv"),
        ffn=of("feed_forward_length"),
        vocab=of("vocab_size"),
        rope_base=float(reader.fields["llama.rope.freq_base"].contents()),
        eps=float(reader.fields["llama.attention.layer_norm_rms_epsilon"].contents()),
    )
    model = Model(config)
    weights = {
        tensor.name: torch.from_numpy(
            np.array(quants.dequantize(tensor.data, tensor.tensor_type), np.float32)
        )
        for tensor in reader.tensors
    }
    model.load_state_dict(weights)
    return model.eval().requires_grad_(requires_grad=False)


def to_device(model: Model, device: str) -> Model:
    """With 16 bits where that is faster: on a GPU, and on a CPU with AMX (three times as fast there)."""
    if device == "cpu":
        return model.to(torch.bfloat16) if torch.cpu.get_capabilities().get("amx_bf16") else model
    torch.backends.cuda.enable_cudnn_sdp(enabled=False)  # it would prepare a plan for each shape of a batch
    return model.to(device, torch.float16)


def load_tokenizer(path: Path) -> Tokenizer:
    """SmolLM's: byte-level BPE, each digit a token of its own."""
    fields = GGUFReader(path).fields
    tokens, merges, types = (
        fields[f"tokenizer.ggml.{i}"].contents() for i in ("tokens", "merges", "token_type")
    )
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return tokenizer


def chat_prompt(prompt: str) -> str:
    """The text after which the assistant answers, as the target's own chat template writes it."""
    return _CHAT.format(system=SYSTEM, prompt=prompt)
