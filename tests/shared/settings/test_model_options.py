import pytest
from pydantic import ValidationError

from lead.engine.events import encode_line
from lead.engine.load import Load
from lead.settings.lead_settings import LeadSettings
from shared.settings.model_options import ModelOptions


def settings(*arguments):
    return LeadSettings.from_command_line(list(arguments))


@pytest.mark.parametrize("kind", ["q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"])
def test_a_quantized_v_cache_without_flash_attention_is_an_error(kind, complaint):
    said = complaint(settings, "-ctv", kind, "-fa", "off")
    assert "-ctv: a quantized V cache needs flash attention: --flash-attn on or auto" in said


@pytest.mark.parametrize("accepted", ["-ctv q8_0 -fa on", "-ctv q8_0 -fa auto", "-ctk q4_0 -fa off"])
def test_a_quantized_v_cache_with_flash_attention_and_any_k_cache_are_accepted(accepted):
    settings(*accepted.split())


def test_an_unknown_cache_type_is_an_error_that_lists_the_known_ones(complaint):
    assert "lead: -ctk: must be one of f32, f16, bf16, q8_0" in complaint(settings, "-ctk", "q3_k")


def test_the_options_reach_the_process_that_loads_the_model():
    given = settings("-ctk", "q8_0", "-ub", "64", "-tb", "3", "-nkvo", "-b", "99", "-t", "5")
    load = Load(model="a", options=given.model_options, depth=0)
    assert Load.model_validate_json(encode_line(load)) == load
    got = load.options
    assert (got.cache_type_k, got.ubatch_size, got.threads_batch, got.kv_offload) == ("q8_0", 64, 3, False)
    assert (got.batch_size, got.threads) == (99, 5)


@pytest.mark.parametrize(
    ("given", "flash_attn"), [({}, "off"), ({"flash_attn": "on"}, "on"), ({"cache_type_v": "q8_0"}, "auto")]
)
def test_in_exact_mode_slots_keep_whole_texts_in_cells_of_their_own(given, flash_attn):
    options = ModelOptions(exact="on", **given).for_exact()
    assert (options.kv_unified, options.swa_full, options.flash_attn) == (False, True, flash_attn)


def test_adapters_are_files_with_a_scale(tmp_path):
    file, odd = tmp_path / "a.gguf", tmp_path / "b:2"
    file.touch()
    odd.touch()
    found = ModelOptions(lora=f"{file}, {file}:-0.5,{odd},{odd}:3").lora
    assert [(each.path, each.scale) for each in found] == [(file, 1), (file, -0.5), (odd, 1), (odd, 3)]
    assert ModelOptions.model_validate_json(ModelOptions(lora=found).model_dump_json()).lora == found


@pytest.mark.parametrize(
    "text", ["/nowhere/a.gguf", "/nowhere/a.gguf:0.5", "a.gguf:x", "a.gguf:nan", "a.gguf:inf"]
)
def test_a_wrong_adapter_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.gguf").write_text("x")
    with pytest.raises(ValidationError, match=r"No such file|FILE:SCALE|finite"):
        ModelOptions(lora=text)
