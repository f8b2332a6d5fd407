"""Commands in pages run, with tiny models in place of the named models, and a free port of this machine.

`NOT_RUN` gives the reasons for commands that cannot run on two cores without a network. test_commands.py
checks that their options exist.
"""

import ast
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest

from docs.generate.blocks import fill
from docs.generate.pages import BLOCKS, ROOT
from lab.parts.processes import Program, free_port
from tests.certificates import make_certificate
from tests.docs.test_commands import PAGES
from tests.minilm import tiny_bert

pytestmark = pytest.mark.real

CODE = re.compile(r"^ *```bash\n(.*?)^ *```|(?<!`)`([^`\n]+)`", re.MULTILINE | re.DOTALL)
IN_FRONT = re.compile(r"(sudo |\w+=(\"[^\"]*\"|[^ $]*) )+")
PROGRAM = re.compile(
    r"(lead|back|chat|make|python|curl|pip|pytest|llama-server|git|cat|openssl|ssh|apt|brew|wsl|xcode-select)"
    r"|(man|source|for|set|certutil|security|cp|update-ca-(certificates|trust)|taskset|ulimit|chmod)"
)
"""The first words of commands in sentences. In a block of bash each line is a command."""

NOT_RUN = {
    r"lead (bench|plan)|make |pytest |python -m (bench|models)|llama-server ": "takes minutes",
    r"small=|grow|\.venv/bin/lead": "takes minutes, on a GPU",
    r"pip |apt |brew |wsl |xcode-select |ssh |lead models pull|lead .*-hf ": "reaches other machines",
    r"lead rpc-worker|lead .*--rpc": "needs a llama.cpp with RPC: tests/real/test_rpc.py",
    r"lead --announce|back --discover": "multicast: tests/network/test_hosts.py",
    r"cp |certutil |security |update-ca": "changes which authorities the system trusts",
    r"source |set -p|for file|man ": "is for a shell: tests/docs/test_command_lines.py",
    r"export |claude |codex |opencode |qwen |pi |aider ": "tests/clients/test_agents.py",
    r"lead .*--mmproj|chat --image": "needs `make images`: tests/real/test_images.py",
    r"lead --draft-model (mtp|eagle3)-": "tests/lead/heads",
    r"python -m (docs\.|lead$)|git |lead (front|\|) ": "is about this checkout, or a drawing",
    r".* (--join|--ca-file|--max-drafts-per-second|644|convert|generate|service)$": "lacks its arguments",
}
"""Beginnings of commands that are not run, and the reasons."""

HERE = {
    r"\s# .*| …$| \[options\]": "",
    r"https?://[\w.-]+:5555": "$URL",
    r"https://\w+:5556": "$MEMBERS",
    r"--host 0\.0\.0\.0": "",
    r"--nearby": "--address 127.0.0.1",
    r"service install": "service install --dry-run",
    r"smollm2-draft": "1B.gguf",
    r"smollm2": "70B.gguf",
    r"FOLDER|~/models": "models",
    r"--revoke NAME": "--app --name NAME && lead invite --revoke NAME",
    r"^lead +(?=-)": "lead --port 0 ",
    r"^curl": "curl --silent --show-error --fail-with-body",
}
"""Patterns in commands, and their replacements here."""
SERVES = re.compile(r"(?:lead|back) (?!\w)(?!.*--(?:check|help|list-devices))")
READY = r"INFO: ready|with \d+ model|drafting for "
FINDINGS = re.compile(r"problems? found|nothing was removed")
"""The output of a program that has done its work and ends with status 1."""


def commands(page):
    """Each line of the page's blocks of bash, and each command in a sentence."""
    for block, inline in CODE.findall(fill((ROOT / page).read_text("utf-8"), dict.fromkeys(BLOCKS, str))):
        for line in re.sub(r"\\\n\s*", "", block or inline).splitlines():
            first, _, rest = IN_FRONT.sub("", line.strip()).partition(" ")
            if (block and first) or (rest and PROGRAM.fullmatch(first)):
                yield line.strip()


def reason(command):
    """The reason why a command is not run; None if it is run."""
    bare = IN_FRONT.sub("", re.sub(r"\s+# .*", "", command))
    return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, bare)), None)


def as_here(command):
    for pattern, instead in HERE.items():
        command = re.sub(pattern, instead, command)
    return command.strip()


OF_PAGES = [page for page in PAGES if page.parts[0] not in {"deploy", "docker"}]
COMMANDS = [command for page in OF_PAGES for command in commands(page)]
RUN = dict.fromkeys(as_here(command) for command in COMMANDS if reason(command) is None)


@contextlib.contextmanager
def running(line):
    """A lead that is healthy, or a back that drafts."""
    with Program("server", command=["bash", "-c", f"exec {line}"]) as program:
        program.wait_for(READY)
        if line.startswith("lead"):
            url = program.wait_for(r"listening on (https?://[\w.:]+)")[1]
            with httpx.Client(base_url=url, verify=False) as client:  # noqa: S501
                while (health := client.get("/health")).status_code == HTTPStatus.SERVICE_UNAVAILABLE:
                    with contextlib.suppress(subprocess.TimeoutExpired):  # another model may be loading
                        program.process.wait(0.05)
            assert health.is_success, health.text
        yield


@pytest.fixture(scope="module")
def folder(tiny_model, tmp_path_factory):
    """The working and home directory, with every file that the commands name."""
    folder = tmp_path_factory.mktemp("page")
    words = ["fox", "dog", "barks"]
    vectors, ranks = (
        tiny_bert(folder / f"{name}.gguf", words, ranks=name == "ranks") for name in ("vectors", "ranks")
    )
    (folder / "models").mkdir()
    for name in {"models/gemma.gguf", *re.findall(r"\S+\.gguf", " ".join(RUN))}:
        model = vectors if "embed" in name else ranks if "rerank" in name else tiny_model("llama")
        os.link(model, folder / name)
    certificate = make_certificate(folder, "localhost")
    for name in ("lead-cert.pem", "tls.pem", "ca.crt"):
        shutil.copy(certificate.chain, folder / name)
    shutil.copy(certificate.key, folder / "lead-key.pem")
    for role in ("api", "back"):
        (folder / f"{role}.key").write_text(f"{role:0>32}")
    (folder / "keys").write_text(f"client someone {'1' * 32}")
    return folder


@pytest.fixture(scope="module")
def here(folder):
    """The folder, with a running lead whose address is in the environment of each program."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = {
        "HOME": folder,
        **{f"XDG_{kind}_HOME": folder / kind.lower() for kind in ("DATA", "CONFIG", "CACHE")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        **dict.fromkeys(("URL", "CHAT_LEAD", "BACK_LEAD", "LEAD_INVITE_LEAD"), url),
        "MEMBERS": f"https://127.0.0.1:{port + 1}",
        "LEAD_PORT": port,
        **dict.fromkeys(("LEAD_THREADS", "BACK_THREADS", "CHAT_MAX_TOKENS"), 1),
        "LEAD_CALIBRATE": "false",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, value in environment.items():
            patch.setenv(name, str(value))
        with running("lead --model 70B.gguf --embedding-model vectors.gguf --rerank-model ranks.gguf"):
            yield


def run_to_end(line):
    """The output of a command, which has to succeed."""
    shell = ["bash", "-c", line]
    done = subprocess.run(shell, input="Hello!", capture_output=True, text=True, timeout=240, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0 or (done.returncode == 1 and FINDINGS.search(said)), said
    return said


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("line", RUN)
def test_a_command_in_a_page_runs(line):
    if re.search(r"CODE|MEMBERS|lead invite(?!.*--(open|close|list))", line):
        said = run_to_end("lead invite --open --address 127.0.0.1" + " --chat" * line.startswith("chat"))
        line = line.replace("CODE", re.search(r"--join (\S+)", said)[1])
    if SERVES.match(line):
        with running(line):
            return
    run_to_end(line)


def test_every_reason_is_one_of_some_command():
    assert {*NOT_RUN.values()} == {reason(command) for command in COMMANDS} - {None}


@pytest.mark.parametrize("page", OF_PAGES, ids=str)
def test_a_block_that_begins_with_a_command_is_one_of_bash(page):
    blocks = re.findall(r"^ *```\n(\w+) (?![^`]*[─│])", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    assert not [first for first in blocks if PROGRAM.fullmatch(first)]


@pytest.mark.parametrize(
    ("language", "parse"), {"python": ast.parse, "json": json.loads, "toml": tomllib.loads}.items()
)
def test_code_in_other_languages_is_well_formed(language, parse):
    """tests/clients runs the programs that read this code."""
    pages = "".join((ROOT / page).read_text("utf-8") for page in OF_PAGES)
    blocks = re.findall(rf"^```{language}\n(.*?)^```", pages, re.MULTILINE | re.DOTALL)
    assert [parse(block) for block in blocks]
