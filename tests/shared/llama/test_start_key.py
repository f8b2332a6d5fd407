"""Keys of the data that one start keeps for the next. They contain everything that the data depend on."""

import os

import pytest

from lead.engine.load import Load
from shared.errors import ModelLoadError
from shared.llama import start_key as module
from shared.llama.start_key import DECIDES, StoredKind, start_key, state_of_files
from shared.settings.model_options import LoraAdapter, ModelOptions

BEFORE = ModelOptions(threads=1)
ANOTHER = {
    "n_gpu_layers": 1,
    "ctx_size": 512,
    "parallel": 3,
    "threads": 2,
    "flash_attn": "on",
    "cache_type_k": "q8_0",
    "cache_type_v": "q8_0",
    "cache_ram": 1,
    "kv_offload": False,
    "ubatch_size": 32,
    "threads_batch": 2,
    "load_mode": "none",
    "repack": False,
    "device": ("none",),
    "split_mode": "none",
    "main_gpu": 1,
    "tensor_split": (1.0, 2.0),
    "cpu_moe": True,
    "n_cpu_moe": 1,
    "override_tensor": ("exps=CPU",),
    "fit": "off",
    "fit_target": 1,
    "kv_unified": False,
    "lora": (LoraAdapter(path="a.gguf"),),
    "exact": "auto",
    "batch_size": 32,
    "swa_full": True,
    "ctx_checkpoints": 1,
    "checkpoint_memory": 1,
}
"""For each option of a model, a value that is not the default."""
BY_WAY_OF = {
    **dict.fromkeys(("policy", "draft", "mtp"), "with_heads"),
    "calibrate": "flash_attn",
    "exactness": "batch_sizes",
    "taken": "n_gpu_layers",
    **{name: name for name in ("rpc", "max_threads")},
    **dict.fromkeys(("depth", "ngram", "suffix_memory", "suffix_max_age", "max_mtp"), ""),
    **dict.fromkeys(("cache_disk", "cache_disk_size", "heartbeat_seconds", "rpc_timeout"), ""),
    "images": "",  # whose keys are in the texts
}
"""By parts of `Load` except `model` and `options`: the input of a key through which it affects kept data.

It is empty if the part affects none.
"""
OF_A_START = sorted(DECIDES.keys() - ModelOptions.model_fields.keys())


def key(kept, options=BEFORE, files="files", **facts):
    needed = [name for name in OF_A_START if kept in DECIDES[name]]
    return start_key(kept, files, options, **dict.fromkeys(needed, 0) | facts)


def test_every_option_has_a_row_and_every_row_something_that_it_is_about():
    """For a new option, decide in `DECIDES` which kept data it changes, and give it another value here."""
    assert ModelOptions.model_fields.keys() <= DECIDES.keys()
    assert ModelOptions.model_fields.keys() == ANOTHER.keys()
    assert BY_WAY_OF.keys() == Load.model_fields.keys() - {"model", "options"}
    assert set(BY_WAY_OF.values()) - {""} <= DECIDES.keys()


@pytest.mark.parametrize("kept", StoredKind)
@pytest.mark.parametrize("name", sorted(ANOTHER))
def test_an_option_changes_the_keys_that_its_row_says_and_no_others(kept, name):
    options = BEFORE.model_copy(update={name: ANOTHER[name]})
    assert (key(kept, options) != key(kept)) == (kept in DECIDES[name])


@pytest.mark.parametrize("name", OF_A_START)
def test_so_does_what_else_a_start_finds(name):
    for kept in DECIDES[name]:
        assert key(kept, **{name: 1}) != key(kept)


@pytest.mark.parametrize("kept", StoredKind)
def test_no_fact_can_be_left_out_or_put_into_one_key_only(kept):
    facts = {name: 0 for name in OF_A_START if kept in DECIDES[name]}
    for wrong in ({**facts, "another": 0}, {name: 0 for name in facts if name != "version"}):
        with pytest.raises(AssertionError, match="other facts"):
            start_key(kept, "files", BEFORE, **wrong)


def test_each_kind_has_keys_of_its_own():
    assert len({key(kept) for kept in StoredKind}) == len(StoredKind)


@pytest.mark.parametrize("name", ["library.build", "cpus.kind", "devices.descriptions"])
def test_another_build_cpu_or_device_has_other_keys(monkeypatch, name):
    before = key(StoredKind.TEXTS)
    monkeypatch.setattr(f"{module.__name__}.{name}", lambda: ["another one"])
    assert key(StoredKind.TEXTS) != before


@pytest.mark.parametrize(("name", "counts"), [("LLAMA_ATTN_ROT_DISABLE", True), ("LLAMA_ARG_PORT", False)])
def test_so_have_variables_that_llama_cpp_reads_itself(monkeypatch, name, counts):
    before = key(StoredKind.TEXTS)
    monkeypatch.setitem(os.environ, name, "1")
    assert (key(StoredKind.TEXTS) != before) == counts


def test_files_are_told_apart_by_size_and_time_of_change(tmp_path):
    model, adapter = tmp_path / "model.gguf", tmp_path / "adapter.gguf"
    model.write_bytes(b"GGUF")
    adapter.write_bytes(b"GGUF")
    options = ModelOptions(lora=str(adapter))
    states = [state_of_files(model, BEFORE), state_of_files(model, options)]
    adapter.write_bytes(b"GGUF2")
    states.append(state_of_files(model, options))
    os.utime(model, (0, 0))
    states.append(state_of_files(model, options))
    assert len(set(states)) == 4


def test_a_file_that_is_gone_is_said(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    options = ModelOptions(lora=(LoraAdapter(path=tmp_path / "gone.gguf"),))
    with pytest.raises(ModelLoadError, match=r"gone\.gguf cannot be read: No such file"):
        state_of_files(tmp_path / "model.gguf", options)
