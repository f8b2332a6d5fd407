import re
from pathlib import Path

import pytest

from back.settings import BackSettings
from lead.settings.lead_settings import LeadSettings
from shared.settings.llama_server_options import LLAMA_SERVER
from tests.options import option as value_of
from tests.shared.settings.arg_cpp import LIST, options

OPTIONS = [
    ("-m a.gguf", "model", "a.gguf"),
    ("-a toy", "alias", "toy"),
    ("-ngl 99", "n_gpu_layers", 99),
    ("--gpu-layers 99", "n_gpu_layers", 99),
    ("-c 4096", "ctx_size", 4096),
    ("-np 2", "parallel", 2),
    ("-b 256", "batch_size", 256),
    ("-t 3", "threads", 3),
    ("-v", "log_level", "debug"),
    ("--log-jsonl", "log_json", True),
    ("-to 30", "write_seconds", 30.0),
    ("-ngl all", "n_gpu_layers", -2),
    ("-ngl -2", "n_gpu_layers", -2),
    ("-ngl auto", "n_gpu_layers", -1),
    ("-dev CUDA1,CUDA0", "device", ("CUDA1", "CUDA0")),
    ("-devd CUDA1", "device_draft", ("CUDA1",)),
    ("-cmoe", "cpu_moe", True),
    ("-ncmoe 4", "n_cpu_moe", 4),
    ("-ot exps=CPU,attn=CUDA0", "override_tensor", ("exps=CPU", "attn=CUDA0")),
    ("-fit off", "fit", "off"),
    ("-fitt 512", "fit_target", 512),
    ("--list-devices", "list_devices", True),
    ("-np -1", "parallel", 4),
    ("-t -1", "threads", 0),
    ("-tb 2", "threads_batch", 2),
    ("-ub 64", "ubatch_size", 64),
    ("--no-webui", "ui", False),
    *((f"-fa {word}", "flash_attn", "on") for word in ("on", "1", "enabled")),
    *((f"-fa {word}", "flash_attn", "off") for word in ("off", "0", "false")),
    ("-fa auto", "flash_attn", "auto"),
    ("-ctk q8_0", "cache_type_k", "q8_0"),
    ("-ctv q8_0", "cache_type_v", "q8_0"),
    ("-nkvo", "kv_offload", False),
    ("-kvu", "kv_unified", True),
    ("-no-kvu", "kv_unified", False),
    ("-sm none", "split_mode", "none"),
    ("-mg 1", "main_gpu", 1),
    ("-ts 3,1", "tensor_split", (3.0, 1.0)),
    ("-ts 3/1", "tensor_split", (3.0, 1.0)),
    ("--mlock", "load_mode", "mmap+mlock"),
    ("--no-mmap", "load_mode", "none"),
    ("--load-mode=dio", "load_mode", "dio"),
    ("-md b.gguf", "draft_model", "b.gguf"),
    ("-mm c.gguf", "mmproj", "c.gguf"),
    ("--no-mmproj-offload", "mmproj_offload", False),
    ("--no-mmproj", "mmproj_auto", False),
    ("--no-mmproj-auto", "mmproj_auto", False),
    ("-ctkd q8_0", "cache_type_k_draft", "q8_0"),
    ("--draft 5", "draft_max", 5),
]
BACKS_OPTIONS = [item for item in OPTIONS if item[1] in BackSettings.options()]
VARIABLES = [
    ("LLAMA_ARG_MODEL", "a.gguf", "model", "a.gguf"),
    ("LLAMA_ARG_ALIAS", "toy", "alias", "toy"),
    ("LLAMA_ARG_N_GPU_LAYERS", "99", "n_gpu_layers", 99),
    ("LLAMA_ARG_DEVICE", "CUDA1", "device", ("CUDA1",)),
    ("LLAMA_ARG_CPU_MOE", "1", "cpu_moe", True),
    ("LLAMA_ARG_OVERRIDE_TENSOR", "exps=CPU", "override_tensor", ("exps=CPU",)),
    ("LLAMA_ARG_CTX_SIZE", "4096", "ctx_size", 4096),
    ("LLAMA_ARG_N_PARALLEL", "2", "parallel", 2),
    ("LLAMA_ARG_BATCH", "256", "batch_size", 256),
    ("LLAMA_ARG_THREADS", "3", "threads", 3),
    ("LLAMA_ARG_FLASH_ATTN", "off", "flash_attn", "off"),
    ("LLAMA_ARG_CACHE_TYPE_K", "q8_0", "cache_type_k", "q8_0"),
    ("LLAMA_ARG_CACHE_TYPE_V", "q8_0", "cache_type_v", "q8_0"),
    ("LLAMA_ARG_NO_KV_OFFLOAD", "1", "kv_offload", False),
    ("LLAMA_ARG_TENSOR_SPLIT", "3,1", "tensor_split", (3.0, 1.0)),
    ("LLAMA_ARG_HOST", "::1", "host", "::1"),
    ("LLAMA_ARG_UI", "0", "ui", False),
    ("LLAMA_ARG_PORT", "8080", "port", 8080),
]


def plain(value):
    return value if isinstance(value, int | float | str | tuple | None) else str(value)


def command_lines(options):
    """As few command lines as possible that set nothing twice: reading each takes a twentieth of a second."""
    left = list(options)
    while left:
        line = list({setting: (typed, setting, value) for typed, setting, value in reversed(left)}.values())
        yield line
        left = [each for each in left if each not in line]


def misread(settings, options):
    """The options that are read wrongly."""
    wrong = []
    for line in command_lines(options):
        read = settings.from_command_line(" ".join(typed for typed, _, _ in line).split())
        found = [(typed, plain(value_of(read, setting)), value) for typed, setting, value in line]
        wrong += [(typed, got) for typed, got, value in found if got != value]
    return wrong


def test_lead_and_back_understand_every_option():
    assert misread(LeadSettings, OPTIONS) == misread(BackSettings, BACKS_OPTIONS) == []


def test_lead_understands_every_variable(monkeypatch):
    wrong = []
    for variable, text, setting, value in VARIABLES:
        with monkeypatch.context() as patch:
            patch.setenv(variable, text)
            wrong += [(variable, each) for each in misread(LeadSettings, [("", setting, value)])]
    assert wrong == []


@pytest.mark.parametrize("option", ["-cb", "--jinja", "--warmup", "--no-warmup", "--no-perf"])
def test_options_without_effect_are_ignored(option):
    assert LeadSettings.from_command_line([option, "-np", "2"]).compute.parallel == 2


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--audio", "only text and images"),
        ("--mmproj-url", "--mmproj FILE"),
        ("-nocb", "always continuous"),
        ("-tbd", "--threads-draft"),
        ("-otd", "--device-draft"),
    ],
)
def test_unsupported_options_are_refused_with_the_reason(option, reason, complaint):
    error = complaint(LeadSettings.from_command_line, [option])
    assert error.startswith(f"lead: {option}: ")
    assert reason in error


def test_every_spelling_has_one_meaning():
    spelled = [option for item in LLAMA_SERVER.spellings.values() for option in item.options]
    spelled += [option for item in LLAMA_SERVER.spellings.values() for option in item.constants]
    assert len(spelled) == len(set(spelled))
    assert not LLAMA_SERVER.ignored.keys() & LLAMA_SERVER.refused.keys()
    assert not set(spelled) & (LLAMA_SERVER.ignored.keys() | LLAMA_SERVER.refused.keys())


def listed():
    """The lines of the list without the first line: (spellings, number of values, variable)."""
    for line in LIST.read_text().splitlines()[1:]:
        spellings, n_values, variable = line.split("\t")
        yield spellings.split(), int(n_values), variable


def test_the_list_is_of_the_version_that_is_installed():
    constraints = (Path(__file__).parents[3] / "constraints.txt").read_text()
    pinned = re.search(r"^llama_cpp_python==(.*)$", constraints, re.MULTILINE)[1]
    assert LIST.read_text().splitlines()[0] == f"llama_cpp_python-{pinned}"


def test_every_option_of_llama_server_is_known_with_its_number_of_values():
    actions = LeadSettings.sources().parser()._option_string_actions
    taken = {option: {0: {0}, "?": {0, 1}}.get(action.nargs, {1}) for option, action in actions.items()}
    ignored = {option: {n_values} for option, n_values in LLAMA_SERVER.ignored.items()}
    wrong = [
        option
        for spellings, n_values, _ in listed()
        for option in spellings
        if n_values not in (taken | ignored).get(option, {n_values})
        or option not in taken | LLAMA_SERVER.ignored | LLAMA_SERVER.refused
    ]
    assert wrong == []


def test_every_option_of_both_has_its_variable():
    settings = {
        option: action.dest
        for option, action in LeadSettings.sources().parser()._option_string_actions.items()
    }
    unread = [
        variable
        for spellings, _, variable in listed()
        for setting in {settings[option] for option in spellings if option in settings}
        if variable and variable not in LLAMA_SERVER.spellings[setting].variables
    ]
    assert unread == []


ARG_CPP = """
    // add_opt(common_arg({"--gone"}, "N", "", [](common_params & params, int value) {}));
    add_opt(common_arg(
        {"-a", "--apple"}, "N", // {"no", "option"}
        string_format("(default: %s)", "{x}"),
        [](common_params & params, int value) { params.a = value; }
    ).set_env("LLAMA_ARG_APPLE"));
    add_opt(common_arg(
        {"--pear"},
        {"--no-pear"},
        "pears",
        [](common_params & params, bool value) { params.b = value; }
    ).set_examples({LLAMA_EXAMPLE_SERVER, LLAMA_EXAMPLE_CLI}));
    add_opt(common_arg(
        {"--range"}, "START", "END", "",
        [](common_params & params, const std::string & start, const std::string & end) {}
    ));
    add_opt(common_arg({"--cli"}, "", [](common_params &) {}).set_examples({LLAMA_EXAMPLE_CLI}));
    add_opt(common_arg({"--rest"}, "", [](common_params &) {}).set_excludes({LLAMA_EXAMPLE_SERVER}));
    add_opt(common_arg({"preset"}, "", [](common_params &) {}).set_preset_only());
"""


def test_options_are_read_from_llama_cpps_source():
    assert options(ARG_CPP) == [
        (["-a", "--apple"], 1, "LLAMA_ARG_APPLE"),
        (["--pear", "--no-pear"], 0, ""),
        (["--range"], 2, ""),
    ]
