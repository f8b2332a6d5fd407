"""What programs make of damaged and hostile model files: a sentence, soon, and other models are served."""

import asyncio
import random
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from bench.fuzzing.strange_files import TEMPLATES, StrangeFiles
from bench.fuzzing.tally import Tally
from bench.processes import Program
from shared.keeper import in_thread
from shared.models.builtin import builtin_draft
from shared.python_child import ChildProcess, child_command

SMALL = ("--threads", "1", "--ctx-size", "256")
PROGRAMS = {
    "lead --check": ("lead", "--check", "--port", "0", *SMALL),
    "lead generate": ("lead", "generate", "-n", "1", "-i", "Hi", *SMALL),
    "back --check": ("back", "--check", "--threads", "1"),
}
"""Each reads one model; `lead generate` starts a lead and all of its processes."""
_WITH_SENTENCE = {0, 1}
_REFUSED = {400, 503}
_GOOD = "good"
_ANY_TIME = httpx.Timeout(None)


class FileFuzzer:
    """Writes strange files, and has programs read them."""

    def __init__(self, rng: random.Random, tally: Tally, most_seconds: float = 10.0) -> None:
        """most_seconds: that a program may take for one file, more than for the good one."""
        self._files = StrangeFiles(rng, builtin_draft())
        self._tally = tally
        self._most_seconds = most_seconds
        self._usual: dict[str, float] = {}
        """Seconds that each program takes for the good file: this machine may be slow, or busy."""

    async def run(self, n: int) -> None:
        """With the hostile templates, and with `n` other files."""
        chosen = [self._files.with_template(template) for template in TEMPLATES]
        contents = [*chosen, *(content for content, _ in zip(self._files, range(n), strict=False))]
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{number}.gguf" for number in range(len(contents))]
            for path, content in zip(paths, contents, strict=True):
                path.write_bytes(content)
            good = Path(folder) / f"{_GOOD}.gguf"
            good.symlink_to(builtin_draft())
            await self.read_alone([good, *paths])
            await self.read_folder(Path(folder), [path.stem for path in paths])

    async def read_alone(self, paths: Sequence[Path]) -> None:
        """Each by each program."""
        for path in paths:
            for what, command in PROGRAMS.items():
                await self._run(what, path.name, *command, "--model", str(path))
            self._tally.counts["messages"] += 1

    async def read_folder(self, folder: Path, models: Sequence[str]) -> None:
        """All, by `lead models` and by a router, which is asked for each of these beside the good one."""
        await self._run("lead models", folder.name, "lead", "models", "--models-dir", str(folder))
        options = ("--port", "0", "--models-dir", str(folder), "--models-max", "2", *SMALL)
        with Program("lead", *options) as router:
            url = (await asyncio.to_thread(router.wait_for, r"listening on (http://\S+), with")).group(1)
            async with httpx.AsyncClient(base_url=url, timeout=_ANY_TIME, trust_env=False) as client:
                for model in [_GOOD, *models]:
                    _, is_served = await asyncio.gather(self._ask(client, model), self._ask(client, _GOOD))
                    if not is_served:
                        self._note(f"CRASH: the good model does not answer beside {model}")
            if "Traceback" in router.log:
                self._note("CRASH: a router has logged a traceback")

    async def _ask(self, client: httpx.AsyncClient, model: str) -> bool:
        """Whether it answers; otherwise it has to say why not."""
        began = time.monotonic()
        request = {"model": model, "prompt": "Hi", "max_tokens": 1}
        answer = await client.post("/v1/completions", json=request)
        self._check_time("a router", model, began)
        is_refused = answer.status_code in _REFUSED and bool(answer.json()["error"]["message"])
        if not (answer.is_success or is_refused):
            self._note(f"CRASH: {model} in a router: {answer.status_code} {answer.text[:200]}")
        return answer.is_success

    async def _run(self, what: str, file: str, module: str, *arguments: str) -> None:
        began = time.monotonic()
        command = child_command(module, *arguments)
        process = ChildProcess(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._tally.counts["connections"] += 1
        try:
            async with asyncio.timeout(10 * self._most_seconds):
                output, _ = await in_thread(process.communicate)
        except TimeoutError:
            self._note(f"CRASH: {what} of {file} does not end")
            process.kill()
            return
        self._check_time(what, file, began)
        last = output.decode("utf-8", "replace").strip().rpartition("\n")[2]
        if process.returncode not in _WITH_SENTENCE or b"Traceback" in output:
            self._note(f"CRASH: {what} of {file}: status {process.returncode}, {last}")

    def _check_time(self, what: str, file: str, began: float) -> None:
        seconds = time.monotonic() - began
        more = seconds - self._usual.setdefault(what, seconds)
        if more > self._most_seconds:
            self._note(f"CRASH: {what} takes {seconds:.0f} s for {file}")

    def _note(self, what: str) -> None:
        self._tally.counts[what] += 1
