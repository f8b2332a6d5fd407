from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter

from shared.convert.gguf_file import Quantization
from shared.convert.grow import Shape, grow, main
from shared.errors import ConfigError
from shared.model_files.builtin import builtin_draft
from tests.shared.convert.conftest import load, logits
from tests.shared.model_files.gguf_copies import with_tensor
from tests.tiny_models import write_and_close

OLD = Shape(width=128, n_layers=2, n_heads=4, n_feed_forward=256)
LARGER = Shape(width=192, n_layers=5, n_heads=10, n_feed_forward=416)
PROMPT = (
    "<|im_start|>user\nTell me a story about a fox named Zorvi who gets lost, with a red umbrella."
    "<|im_end|>\n<|im_start|>assistant\n"
)

Grower = Callable[..., Path]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Grower:
    """grown(shape, quantization) → the draft model, enlarged to the shape. Each is made once."""
    folder = tmp_path_factory.mktemp("grown")

    @cache
    def make(shape: Shape, quantization: Quantization, source: Path | None = None) -> Path:
        source = source or builtin_draft()
        path = folder / f"{source.stem}-{hash(shape)}-{quantization}.gguf"
        grow(source, path, shape, quantization)
        return path

    return make


def answer(path: Path) -> np.ndarray:
    """The logits after each token of the prompt."""
    model = load(path)
    rows = logits(model, model.vocabulary.tokenize(PROMPT, add_special=False, parse_special=True))
    model.close()
    return rows


def relative_error(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


@cache
def read(path: Path) -> GGUFReader:
    return GGUFReader(path)


def metadata(path: Path) -> dict[str, object]:
    return {key: field.contents() for key, field in read(path).fields.items()}


# The same function


@pytest.mark.parametrize("quantization", get_args(Quantization))
def test_a_larger_shape_computes_the_same_function(grown: Grower, quantization: Quantization) -> None:
    """The reference is the old shape in the same quantization, so that only growing can make a difference."""
    old, new = answer(grown(OLD, quantization)), answer(grown(LARGER, quantization))
    assert relative_error(new, old) < (1e-4 if quantization == "f32" else 1e-2)


@pytest.mark.parametrize("quantization", ["f32", "f16", "q8_0"])
def test_the_function_is_the_source_s(grown: Grower, quantization: Quantization) -> None:
    source, new = answer(builtin_draft()), answer(grown(LARGER, quantization))
    assert relative_error(new, source) < 0.03


def test_an_untied_output_matrix_grows_too(grown: Grower, tmp_path: Path) -> None:
    untied = tmp_path / "untied.gguf"
    with_tensor(builtin_draft(), untied, "output.weight", "token_embd.weight")
    assert relative_error(answer(grown(LARGER, "f32", untied)), answer(grown(OLD, "f32"))) < 1e-4


def test_the_old_shape_in_the_old_quantization_keeps_every_weight(grown: Grower) -> None:
    old = {tensor.name: tensor.data for tensor in read(builtin_draft()).tensors}
    new = {tensor.name: tensor.data for tensor in read(grown(OLD, "q8_0")).tensors}
    assert new.keys() == old.keys()
    assert all(np.array_equal(new[name], old[name]) for name in old)


# What the file says


def test_the_file_has_the_shape_asked_for(grown: Grower) -> None:
    said = metadata(grown(LARGER, "f16"))
    assert said["llama.embedding_length"] == LARGER.width
    assert said["llama.block_count"] == LARGER.n_layers
    assert said["llama.attention.head_count"] == LARGER.n_heads
    assert said["llama.attention.head_count_kv"] == LARGER.n_heads // 2
    assert said["llama.feed_forward_length"] == LARGER.n_feed_forward
    assert said["llama.attention.key_length"] == 32
    embedding = next(t for t in read(grown(LARGER, "f16")).tensors if t.name == "token_embd.weight")
    assert embedding.data.shape == (4096, LARGER.width)


def test_tokenizer_and_chat_template_are_the_source_s(grown: Grower) -> None:
    old, new = metadata(builtin_draft()), metadata(grown(LARGER, "f16"))
    kept = {key: value for key, value in old.items() if key.startswith("tokenizer.")}
    assert kept.items() <= new.items()
    assert read(grown(LARGER, "f16")).fields["tokenizer.ggml.token_type"].types[-1] == GGUFValueType.INT32


# Refusals


@pytest.mark.parametrize("field", ["width", "n_layers", "n_heads", "n_feed_forward"])
def test_a_smaller_shape_is_refused_by_the_field_s_name(source: Path, tmp_path: Path, field: str) -> None:
    smaller = replace(OLD, **{field: getattr(OLD, field) // 2})
    with pytest.raises(ConfigError, match=rf"^{field} \d+ is smaller than the source's"):
        grow(source, tmp_path / "x.gguf", smaller, "f16")
    assert not list(tmp_path.iterdir())


def test_heads_that_do_not_fill_a_group_are_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^n_heads 5 is not a multiple of 2"):
        grow(source, tmp_path / "x.gguf", replace(OLD, n_heads=5), "f16")


@pytest.mark.parametrize(("field", "value"), [("width", 130), ("n_feed_forward", 300)])
def test_rows_that_do_not_fill_quantized_blocks_are_refused(
    source: Path, tmp_path: Path, field: str, value: int
) -> None:
    with pytest.raises(ConfigError, match=f"^{field} makes rows of {value} values"):
        grow(source, tmp_path / "x.gguf", replace(OLD, **{field: value}), "q4_0")


def test_rows_of_any_length_are_fine_unquantized(grown: Grower) -> None:
    odd = replace(OLD, width=130, n_feed_forward=300)
    assert relative_error(answer(grown(odd, "f16")), answer(grown(OLD, "f16"))) < 1e-2


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all"], ids=["empty", "cut", "other"])
def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    source = tmp_path / "source.gguf"
    source.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read as a GGUF file"):
        grow(source, tmp_path / "x.gguf", LARGER, "f16")


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "mamba.gguf"
    write_and_close(GGUFWriter(source, "mamba"))
    with pytest.raises(ConfigError, match="architecture 'mamba': only llama models can grow"):
        grow(source, tmp_path / "x.gguf", LARGER, "f16")


def test_a_tensor_that_growing_does_not_know_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "biased.gguf"
    with_tensor(builtin_draft(), source, "blk.0.attn_q.bias", "blk.0.attn_norm.weight")
    with pytest.raises(ConfigError, match=r"has blk\.0\.attn_q\.bias: only plain llama models can grow"):
        grow(source, tmp_path / "x.gguf", LARGER, "f16")


def test_a_folder_without_room_is_refused_before_anything_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr("shared.convert.gguf_file.shutil.disk_usage", lambda _folder: Usage)
    with pytest.raises(ConfigError, match=r"needs [\d.]+ MB, but .* has only 0\.001 MB free"):
        grow(source, tmp_path / "x.gguf", LARGER, "f16")
    assert not list(tmp_path.iterdir())


# Progress, cancelling, failing


def test_progress_rises_to_the_size_of_the_tensors(source: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    grow(source, tmp_path / "x.gguf", LARGER, "f16", lambda done, total: seen.append((done, total)))
    assert all(one[0] <= other[0] for one, other in pairwise(seen))
    assert {total for _, total in seen} == {seen[-1][0]}
    reader = GGUFReader(tmp_path / "x.gguf")
    assert seen[-1][0] == (tmp_path / "x.gguf").stat().st_size - reader.data_offset


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, ConfigError])
def test_a_cancelled_growth_leaves_no_file(source: Path, tmp_path: Path, error: type[BaseException]) -> None:
    def cancel(n_done: int, n_total: int) -> None:
        if n_done > n_total // 2:
            raise error

    with pytest.raises(error):
        grow(source, tmp_path / "x.gguf", LARGER, "f16", cancel)
    assert not list(tmp_path.iterdir())


def test_a_failing_disk_is_a_config_error_and_leaves_the_old_file(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    destination = tmp_path / "x.gguf"
    destination.write_text("old")
    monkeypatch.setattr("shared.convert.gguf_file.os.fsync", full)
    with pytest.raises(ConfigError, match=r"cannot write .*x\.gguf: .*No space left"):
        grow(source, destination, LARGER, "f16")
    assert destination.read_text() == "old"
    assert list(tmp_path.iterdir()) == [destination]


# The command


def test_the_command_grows_a_model(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = tmp_path / "x.gguf"
    options = ["--width", "192", "--layers", "5", "--heads", "10", "--feed-forward", "416", "--type", "q8_0"]
    monkeypatch.setattr("sys.argv", ["grow", str(source), str(destination), *options])
    main()
    assert metadata(destination)["llama.block_count"] == 5


def test_the_command_says_what_is_wrong(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--width", "64", "--layers", "5", "--heads", "10", "--feed-forward", "416"]
    monkeypatch.setattr("sys.argv", ["grow", str(source), str(tmp_path / "x.gguf"), *options])
    with pytest.raises(SystemExit, match=r"^grow: width 64 is smaller than the source's 128"):
        main()
