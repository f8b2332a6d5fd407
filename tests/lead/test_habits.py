"""Commands that people type from habit do what they expect, or name the right command in one sentence."""

import pytest

from lead import cli
from lead.habits import translated
from lead.settings.lead_settings import LeadSettings

PROGRAMS = {"bench", "doctor", "models"}
OLLAMA_WORKS = [
    ("list", "models list"),
    ("ls", "models list"),
    ("pull user/repo:Q8_0", "models pull user/repo:Q8_0"),
    ("rm qwen3", "models remove qwen3"),
    ("show qwen3", "models show qwen3"),
    ("serve", ""),
    ("serve --port 0", "--port 0"),
    ("serve qwen3.gguf --port 0", "--model qwen3.gguf --port 0"),
    ("serve hf.co/user/repo:Q8_0", "-hf user/repo:Q8_0"),
    ("help", "--help"),
    ("help bench", "bench --help"),
    ("help doctor", "doctor --help"),
    ("help list", "models list --help"),
    ("help sampling", "--help sampling"),
    ("version", "--version"),
    ("--version", "--version"),
]
OLLAMA_SENTENCES = [
    ("run qwen3", "lead run: `lead --model qwen3` serves a model"),
    ("run user/repo hi", "lead run: `lead -hf user/repo` serves a model"),
    ("run hf.co/user/repo:Q4_0", "lead run: `lead -hf user/repo:Q4_0` serves a model"),
    ("run ./a/b.gguf", "lead run: `lead --model ./a/b.gguf` serves a model"),
    ("run", "lead run: `lead --model FILE` serves a model"),
    ("ps", "lead ps: http://127.0.0.1:5555/ shows"),
    ("stop qwen3", "lead stop: Ctrl-C"),
    ("cp a b", "`lead --model a --alias NAME,NAME`"),
    ("create x -f Modelfile", "lead create: Modelfiles are not supported"),
    ("push x", "`hf upload`"),
    ("signin", "HF_TOKEN"),
    ("launch claude", "docs/recipes.md"),
]
LLAMA_SERVER_WORKS = [
    "-m a.gguf -c 8192 -ngl 99",
    "-hf ggml-org/gemma-3-1b-it-GGUF:Q8_0",
    "-m a.gguf --host 127.0.0.1 --port 8080",
    "-m a.gguf -np 4 -cb --jinja",
    "-m a.gguf -fa",
    "-m a.gguf -fa on -ctk q8_0 -ctv q8_0",
    "-m a.gguf -md b.gguf -ngld 99 --draft-max 8",
    "-m a.gguf --mlock -t 4 -tb 8",
    "-m a.gguf --no-mmap --metrics --slots",
    "-m a.gguf -ot exps=CPU -ncmoe 10 -ts 3,1",
    "-m a.gguf --temp 0.7 --top-k 40 --top-p 0.9 --min-p 0.05 -s 1",
    "-m a.gguf --no-webui --no-warmup",
    "-m a.gguf -a toy -n 256 --reasoning-format none",
    "-m a.gguf --chat-template chatml -v",
    "-m a.gguf -dev none --list-devices",
]
LLAMA_SERVER_SENTENCES = [
    ("-m a.gguf --draft-min 5", "--draft-min"),
    ("-m a.gguf --embeddings", "--embeddings"),
    ("-m a.gguf --log-file x", "--log-file"),
    ("a.gguf", "--model a.gguf"),
    ("-m a.gguf --ctx 4", "did you mean"),
]


@pytest.mark.parametrize(("typed", "meant"), OLLAMA_WORKS)
def test_a_command_of_ollama_has_its_meaning(typed, meant):
    assert translated(typed.split(), PROGRAMS) == meant.split()


@pytest.mark.parametrize(("typed", "sentence"), OLLAMA_SENTENCES)
def test_for_another_command_of_ollama_a_sentence_says_what_does_it(complaint, typed, sentence):
    said = complaint(translated, typed.split(), PROGRAMS)
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("typed", LLAMA_SERVER_WORKS)
def test_a_usual_command_line_of_llama_server_works(typed):
    LeadSettings.from_command_line(typed.split())


@pytest.mark.parametrize(("typed", "sentence"), LLAMA_SERVER_SENTENCES)
def test_what_llama_server_has_and_the_lead_lacks_is_one_sentence(complaint, typed, sentence):
    said = complaint(LeadSettings.from_command_line, typed.split())
    assert sentence in said
    assert said.count("\n") == 1


def test_a_subcommand_may_have_another_name(monkeypatch):
    called = []
    monkeypatch.setattr("lead.router.models_program.main", called.append)
    monkeypatch.setattr("sys.argv", ["lead", "rm", "qwen3"])
    cli.main()
    assert called == [["remove", "qwen3"]]


def test_our_own_command_lines_stay_as_they_are():
    assert translated([], PROGRAMS) == []
    assert translated(["doctor", "--port", "1"], PROGRAMS) == ["doctor", "--port", "1"]
