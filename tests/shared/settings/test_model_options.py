import pytest

from lead.engine.commands import Load, decode_command, encode_command
from lead.settings.lead_settings import LeadSettings
from shared.settings.model_options import ModelOptions


def settings(*arguments):
    return LeadSettings.from_command_line(list(arguments))


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        ("on", "on"),
        ("1", "on"),
        ("enabled", "on"),
        ("off", "off"),
        ("0", "off"),
        ("false", "off"),
        ("auto", "auto"),
    ],
)
def test_flash_attention_accepts_llama_servers_words(value, meaning):
    assert settings("-fa", value).compute.flash_attn == meaning


@pytest.mark.parametrize("kind", ["q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"])
def test_a_quantized_v_cache_without_flash_attention_is_an_error(kind, capsys):
    with pytest.raises(SystemExit) as ended:
        settings("-ctv", kind, "-fa", "off")
    assert ended.value.code == 2
    assert (
        "-ctv: a quantized V cache needs flash attention: --flash-attn on or auto" in capsys.readouterr().err
    )


@pytest.mark.parametrize("fa", ["on", "auto"])
def test_a_quantized_v_cache_with_flash_attention_is_accepted(fa):
    assert settings("-ctv", "q8_0", "-fa", fa).compute.cache_type_v == "q8_0"


def test_a_quantized_k_cache_does_not_need_flash_attention():
    assert settings("-ctk", "q4_0", "-fa", "off").compute.cache_type_k == "q4_0"


def test_an_unknown_cache_type_is_an_error_that_lists_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        settings("-ctk", "q3_k")
    assert "lead: -ctk: Input should be 'f32', 'f16', 'bf16', 'q8_0'" in capsys.readouterr().err


@pytest.mark.parametrize("shares", ["3,1", "3/1"])
def test_tensor_split_is_a_list_of_numbers(shares):
    assert settings("-ts", shares).compute.tensor_split == (3.0, 1.0)


@pytest.mark.parametrize(
    ("option", "mode"), [("--mlock", "mmap+mlock"), ("--no-mmap", "none"), ("--load-mode=dio", "dio")]
)
def test_the_older_options_for_loading_work(option, mode):
    assert settings(option).compute.load_mode == mode


def test_the_options_reach_the_process_that_loads_the_model():
    given = settings("-ctk", "q8_0", "-ub", "64", "-tb", "3", "-nkvo", "-b", "99", "-t", "5")
    load = Load(model="a", options=given.model_options, depth=0)
    assert decode_command(encode_command(load)) == load
    got = load.options
    assert (got.cache_type_k, got.ubatch_size, got.threads_batch, got.kv_offload) == ("q8_0", 64, 3, False)
    assert (got.batch_size, got.threads) == (99, 5)


@pytest.mark.parametrize(
    ("given", "flash_attn"),
    [({}, "off"), ({"flash_attn": "on"}, "on"), ({"cache_type_v": "q8_0"}, "auto")],
)
def test_in_exact_mode_slots_keep_whole_texts_in_cells_of_their_own(given, flash_attn):
    options = ModelOptions(exact="on", **given).for_exact()
    assert (options.kv_unified, options.swa_full, options.flash_attn) == (False, True, flash_attn)
