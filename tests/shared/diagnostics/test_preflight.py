import contextlib
from types import SimpleNamespace

import psutil
import pytest

from back.check import check as check_back
from back.cli import main as back
from back.settings import BackSettings
from lead.cli import main as lead
from lead.diagnostics.check import check, prospect_of
from lead.engine.load import Load
from lead.engine.target_loading import options_of_target, plan_target
from lead.settings.lead_settings import LeadSettings
from shared import cpus
from shared.diagnostics.preflight import PreflightReport, check_memory
from shared.errors import ConfigError
from shared.exact.batch_invariance import RESERVE
from shared.llama import devices, library
from shared.llama.placement import CPU, Device, Placement
from shared.memory.plan_memory import plan_memory
from shared.model_files import builtin
from shared.model_files.builtin import builtin_target
from shared.settings.model_options import ModelOptions
from tests.minilm import tiny_bert
from tests.shared.convert.conftest import (  # noqa: F401 - fixtures
    checkpoint,
    conversion_cache,
    gpt2_folder,
    tokenizer,
)
from tests.tiny_eagle import write_tiny_eagle
from tests.tiny_projectors import write_tiny_projector

TARGET = str(builtin_target())


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine with four cores and 1 GB of free memory."""
    usable = {0, 1, 2, 3}

    def pin(chosen):
        if chosen - usable:
            raise ConfigError(f"this process may not use these cores of --cpus: {sorted(chosen - usable)}")
        usable.intersection_update(chosen)

    monkeypatch.setattr(cpus, "usable", lambda: frozenset(usable))
    monkeypatch.setattr(cpus, "n_physical", lambda: len(usable))
    monkeypatch.setattr(cpus, "pin", pin)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=10**9))


def report(*arguments):
    return check(LeadSettings.from_command_line(["-m", TARGET, "--port", "0", "-t", "2", *arguments]))


def test_the_report_says_what_would_be_run():
    text = str(report("-c", "8192", "-np", "2", "-ctk", "q8_0", "--back", "builtin"))
    for fact in (
        *(TARGET, "5.8M parameters, 6.14 MB, mostly Q8_0", "8192 tokens for 2 slots", "KV cache q8_0/f16"),
        *("2 threads on 4 cores", library.describe_kernel(), "127.0.0.1 port 0, no keys", "spec-demo-draft"),
        "This machine can run it.",
    ):
        assert fact in text


def test_what_drafts_would_give_is_said_as_far_as_it_is_known(tiny_model):
    assert "`lead plan` measures" in str(report())
    mixture = check(LeadSettings.from_command_line(["-m", str(tiny_model("qwen3moe")), "--port", "0"]))
    assert "This is usual for mixtures of experts" in str(mixture)


@pytest.mark.parametrize(
    ("device", "stored", "expected"),
    [("MTL0", 15, "K-quants on Metal"), ("MTL0", 7, "`lead plan` measures"), ("CUDA0", 15, "`lead plan`")],
)
def test_k_quants_on_metal_are_known_to_be_steep(device, stored, expected):
    """File type 15 is Q4_K_M, and 7 is Q8_0."""
    gib = 1 << 30
    placed = Placement([Device(device, "", gib, gib)], 2, n_gpu_layers=2, parts={("attention", device): gib})
    info = SimpleNamespace(file_type=stored)
    assert expected in prospect_of(placed, info).value


def test_keys_are_not_shown():
    text = str(report("--api-key", "hidden-key"))
    assert "with keys" in text
    assert "hidden-key" not in text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["-c", "10000000"],
            "of memory with 10000000 tokens, but only 1.00 GB are free: lower --ctx-size",
        ),
        (["-t", "5"], "5 threads on 4 cores slow each other down"),
        (["-t", "3", "--cpus", "0-1"], "3 threads on 2 cores slow each other down"),
        (["--cpus", "7"], "this process may not use these cores of --cpus: [7]"),
        (["--back", "no.gguf"], "--back: "),
        (["--back", "no.gguf"], "no.gguf does not exist. Check the path"),
        (["--host", "192.0.2.1", "--insecure"], "cannot listen on 192.0.2.1"),
        (["--api-key-file", "no.keys"], "no.keys"),
        (["--draft-model", "no.gguf"], "--draft-model: "),
        (["--back-hf-repo", "a/b-GGUF"], "--back: a/b-GGUF is not in the hub's cache"),
        (["-hf", "a/b-GGUF", "-m", ""], "a/b-GGUF is not in the hub's cache, and downloads are disabled"),
    ],
)
def test_the_report_says_what_would_go_wrong(arguments, problem):
    found = report(*arguments)
    assert len(found.problems) == 1
    assert problem in found.problems[0]
    assert f"PROBLEM: {found.problems[0]}" in str(found)


def test_threads_are_counted_on_the_chosen_cores():
    found = check(LeadSettings.from_command_line(["-m", TARGET, "--port", "0", "--cpus", "0-1"]))
    assert "2 threads on cores 0-1" in str(found)
    assert found.problems == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "3 threads on 4 cores, or 4 threads if they are faster and no back runs on this machine"),
        (("--back", "builtin"), "3 threads on 4 cores"),
        (("--exact",), "3 threads on 4 cores"),
    ],
)
def test_a_lead_that_tries_two_numbers_of_threads_states_both(arguments, said):
    found = check(LeadSettings.from_command_line(["-m", TARGET, "--port", "0", *arguments]))
    assert dict(found.lines)["computing"] == said


def test_a_projector_is_counted_and_has_to_be_one_of_the_model(tiny_model, tmp_path):
    paths = {kind: write_tiny_projector(kind, tmp_path / kind) for kind in ("gemma3", "qwen2vl")}
    model = ["-m", str(tiny_model("qwen2vl")), "--port", "0", "-t", "1"]
    found = check(LeadSettings.from_command_line([*model, "--mmproj", str(paths["qwen2vl"])]))
    assert dict(found.lines)["images"].startswith("qwen2vl (qwen2vl_merger), ")
    assert "on CPU" in dict(found.lines)["  images"]
    (problem,) = check(LeadSettings.from_command_line([*model, "--mmproj", str(paths["gemma3"])])).problems
    assert "does not belong to" in problem


def test_a_taken_port_is_a_problem():
    from lead.server.listening import listen  # noqa: PLC0415 - of this test alone

    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1 port {port}" in report("--port", str(port)).problems[0]


def test_a_file_that_is_not_a_model_is_a_problem(tmp_path):
    (tmp_path / "a.gguf").write_text("no model")
    found = check(LeadSettings.from_command_line(["-m", str(tmp_path / "a.gguf"), "--port", "0", "-t", "1"]))
    assert "cannot be loaded: it is not a GGUF file" in found.problems[0]


def test_the_parts_of_the_memory_are_stated_as_at_start_up(tiny_model):
    options = ModelOptions(ctx_size=512, parallel=1, threads=1)
    found = PreflightReport()
    plan = check_memory(found, lambda: plan_memory(tiny_model("qwen35"), options), {})
    assert f"512 tokens for 1 slot, KV cache f16/f16: {plan.size}" in str(found)
    assert "9 recurrent states of 0.021 MB" in str(found)


def test_the_memory_of_exact_mode_is_stated():
    options = ModelOptions(ctx_size=1024, parallel=2, threads=1, exact="on")
    plan = plan_target(Load(model=builtin_target(), options=options), None, *options_of_target(options))
    assert not plan.parameters.kv_unified
    assert plan.parameters.n_ctx == 1024 + 2 * RESERVE


def test_heads_that_do_not_draft_are_not_counted(tiny_with_heads):
    path = str(tiny_with_heads("qwen35"))
    attention = [
        next(line for line in str(report("-m", path, *more)).splitlines() if line.startswith("  attention"))
        for more in ([], ["--mtp", "off"], ["--policy", "off"])
    ]
    assert attention[0] != attention[1] == attention[2]


def test_checkpoints_of_prompts_are_stated(tiny_model):
    path = tiny_model("gemma3")
    text = str(check(LeadSettings.from_command_line(["-m", str(path), "--port", "0", "-t", "1"])))
    assert "MB for keys and values of sliding windows" in text
    assert "up to 8 per slot, 0.0164 MB each" in text


def test_a_back_states_the_states_after_its_draft_tokens(tiny_model):
    arguments = ["-m", str(tiny_model("jamba")), "-t", "1", "-np", "1", "--n-branches", "1", "--n-ahead", "3"]
    text = str(check_back(BackSettings.from_command_line(arguments)))
    assert f"{2 * (1 + 5)} recurrent states of 0.0358 MB" in text


@pytest.mark.parametrize("program", [lead, back])
@pytest.mark.parametrize(("arguments", "status"), [([], 0), (["-t", "99"], 1)])
def test_the_exit_status_is_1_if_there_is_a_problem(monkeypatch, capsys, program, arguments, status):
    name = program.__module__.partition(".")[0]
    monkeypatch.setenv("LEAD_PORT", "0")
    monkeypatch.setattr("sys.argv", [name, "--check", "-m", TARGET, "-t", "1", *arguments])
    monkeypatch.setattr(f"{program.__module__}.configure_logging", lambda _level, **_more: None)
    with pytest.raises(SystemExit) as ended:
        program()
    assert ended.value.code == status
    assert ("PROBLEM" in capsys.readouterr().out) is bool(status)


@pytest.mark.parametrize(("architecture", "n_problems"), [("llama", 0), ("gemma3", 1)])
def test_an_eagle_drafter_needs_a_target_that_gives_the_inputs_of_its_layers(
    tiny_model, tmp_path, architecture, n_problems
):
    eagle = write_tiny_eagle(tmp_path / "eagle.gguf")
    found = report("--model", str(tiny_model(architecture)), "--draft-model", str(eagle))
    assert "EAGLE-3" in dict(found.lines)["draft model"]
    assert len([each for each in found.problems if "inputs of the target's layers" in each]) == n_problems


def test_without_a_model_the_one_that_ships_is_checked():
    settings = LeadSettings.from_command_line(["--port", "0", "-t", "2"])
    assert dict(check(settings).lines)["model"] == TARGET


def test_a_demo_model_that_is_missing_is_a_problem(monkeypatch, tmp_path):
    monkeypatch.setattr(builtin, "files", lambda _: tmp_path)
    (problem,) = check(LeadSettings.from_command_line(["--port", "0", "-t", "2"])).problems
    assert "is missing. Install llama-duo again" in problem


def test_a_model_to_convert_is_described_without_converting_it(checkpoint, conversion_cache):  # noqa: F811
    settings = LeadSettings.from_command_line(
        ["--model", str(checkpoint), "--back", str(checkpoint), "--port", "0", "-t", "2"]
    )
    text = str(check(settings))
    assert "stories.bin, a llama2.c checkpoint of version 1, converted to GGUF at the first start" in text
    assert "stories, 0.1M parameters, 0.233 MB, mostly ALL_F32, on any core" in text
    assert "PROBLEM" not in text
    assert not conversion_cache.exists()


def test_a_model_that_makes_vectors_states_the_length_of_its_texts(tmp_path):
    model = ["-m", str(tiny_bert(tmp_path / "bert.gguf", ["fox"], n_ctx=4096)), "--port", "0"]
    assert "embeds texts of up to 2048 tokens" in str(check(LeadSettings.from_command_line(model)))
    longer = LeadSettings.from_command_line([*model, "--embedding-ctx-size", "3000"])
    assert "embeds texts of up to 3000 tokens" in str(check(longer))


@pytest.mark.parametrize("option", ["--back", "--draft-model"])
def test_a_draft_model_that_must_translate_is_no_problem_and_says_so_below_its_name(
    checkpoint,  # noqa: F811
    gpt2_folder,  # noqa: F811
    tmp_path,
    monkeypatch,
    option,
):
    monkeypatch.setattr("shared.translation.stored_pair.user_cache_path", lambda _name: tmp_path)
    settings = LeadSettings.from_command_line(
        ["-m", str(checkpoint), option, str(gpt2_folder), "--port", "0", "-t", "2"]
    )
    found = check(settings)
    assert found.problems == []
    topics = [each for each, _ in found.lines]
    below, text = found.lines[topics.index({"--back": "backs"}.get(option, "draft model")) + 1]
    assert below == ""
    assert text.startswith("translating: gpt2 and stories have different tokenizers")


@pytest.fixture(name="gpu")
def _gpu(monkeypatch):
    """A GPU with 4.2 MB free."""
    device = Device("GPU0", "a GPU", free=4_200_000, total=8_000_000)
    monkeypatch.setattr(devices, "chosen", lambda _: [])
    monkeypatch.setattr(devices, "describe", lambda _: [device])
    monkeypatch.setattr(devices, "all_devices", lambda: [device])


@pytest.mark.usefixtures("gpu")
def test_each_group_of_tensors_is_stated_with_its_place():
    text = str(report("-c", "512"))
    for fact in (
        "2 of 7 layers: ",
        "free MiB on GPU0 (a GPU)",
        "  feed-forward          3.0 MiB on CPU, 0.6 MiB on GPU0",
        "  embeddings            1.1 MiB on CPU",
        "  GPU0                  4.0 MiB free, ",
        "This machine can run it.",
    ):
        assert fact in text


@pytest.mark.usefixtures("gpu")
def test_what_does_not_fit_on_a_gpu_is_a_problem():
    found = report("-ngl", "99", "-c", "3000000")
    assert found.status == 1
    assert found.problems[0].endswith("Lower --ctx-size")
    assert "4.0 MiB free, which is not enough" in str(found)
    assert "for intermediate results" not in str(found)


@pytest.mark.usefixtures("gpu")
def test_what_a_draft_model_takes_is_in_the_table(vocabulary):
    found = PreflightReport()
    options, taken = ModelOptions(threads=1, ctx_size=512), {"GPU0": 1 << 20, CPU: 3 << 20}
    check_memory(found, lambda: plan_memory(vocabulary.info.path, options, taken=taken), taken)
    assert ("  draft model", "1.0 MiB on GPU0, 3.0 MiB on CPU") in found.lines
    assert "4.0 MiB free" in dict(found.lines)["  GPU0"]


@pytest.mark.usefixtures("gpu")
def test_it_is_not_checked_where_fitting_is_off():
    assert report("-ngl", "99", "-c", "8192", "--fit", "off").status == 0


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("program", "words"),
    [(lead, ["lead"]), (lead, ["lead", "plan"]), (lead, ["lead", "bench"]), (back, ["back"])],
)
def test_devices_are_listed(monkeypatch, capsys, program, words):
    monkeypatch.setattr("sys.argv", [*words, "--list-devices"])
    with contextlib.suppress(SystemExit):
        program()
    assert capsys.readouterr().out == "Available devices:\n  GPU0: a GPU (7 MiB, 4 MiB free)\n"


def test_several_models_are_named_with_what_is_wrong_in_their_file(tmp_path):
    (tmp_path / "a.gguf").symlink_to(builtin_target())
    settings = LeadSettings.from_options(models_dir=tmp_path, port=0)
    (tmp_path / "models.toml").write_text("[a]\npin = true\n")
    report = check(settings)
    assert "a" in dict(report.lines)["models"].split(", ")
    assert dict(report.lines)["pinned"] == "a"
    (tmp_path / "models.toml").write_text("[a]\nctx-sise = 1\n")
    (problem,) = check(settings).problems
    assert "did you mean ctx-size?" in problem
