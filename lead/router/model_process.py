"""The process of one model as the router sees it: started, asked whether it is ready, stopped."""

import asyncio
import contextlib
import json
import re
import secrets
import socket
import subprocess
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
import psutil
from starlette.requests import HTTPConnection

from lead.http.client_gone import cancel
from lead.router.models_file import ServedModel
from lead.router.routed import forwarding_key
from lead.settings.keys import ANYONE
from shared.errors import DuoError
from shared.exits import say
from shared.keeper import Child
from shared.next_hop import LocalTransport
from shared.python_child import child_command
from shared.terminal import one_line, sanitize

_STOP_SECONDS = 15.0
"""The time that an idle process may take to end before it is killed."""
_LAST_LINE_SECONDS = 5.0
_FINAL = {1, 2}
"""Exit statuses after which another start does not help: a wrong model, or a wrong option."""
_LEVEL = re.compile(r"^\S+ \S+ ERROR: ")
"""The log's text before a message (`shared.logs`)."""
_MAX_LINE_BYTES = 1 << 16


class ModelEndedError(DuoError):
    """The process of a model has ended. is_final: starting it again would not help."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


@dataclass(slots=True)
class AboutModel:
    """A loaded model: its record in /v1/models, and its vocabulary."""

    record: dict[str, Any] = field(default_factory=dict)
    vocabulary: str = ""


class ModelProcess(Child):
    """The process of one model: a lead that only the router can reach."""

    def __init__(self) -> None:
        """Start a process that waits for the options of its model; raises OSError."""
        with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
            super().__init__(
                child_command("lead.router.model_lead"),
                [listener.fileno()],
                stop_seconds=_STOP_SECONDS,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                # Ctrl-C reaches the whole process group; the router decides when its models end.
                start_new_session=True,
            )
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            self._listener = listener.fileno()
        self._secret = secrets.token_urlsafe(32)
        self._last_line = ""
        self._is_loading = False
        self._relaying: asyncio.Future[None] | None = None
        self.about = AboutModel()

    @classmethod
    async def spawn(cls) -> Self:
        return cls()

    def headers_for(self, connection: HTTPConnection) -> list[tuple[str, str]]:
        """Return the headers of a forwarded request that identify its sender: key, address, id in the log."""
        client = connection.client
        return [
            ("authorization", f"Bearer {forwarding_key(self._secret, connection.state.principal)}"),
            ("x-forwarded-for", client.host if client else "unknown"),
            ("x-request-id", connection.state.request_id),
        ]

    async def load(self, model: ServedModel) -> None:
        """Load a model; return when it is ready. Raises ModelEndedError."""
        self._relaying = asyncio.ensure_future(self._relay_log(model))
        asking = asyncio.ensure_future(self._begin(model))
        try:
            self._is_loading = True
            await asyncio.wait({asking, self.ended}, return_when=asyncio.FIRST_COMPLETED)
            self._is_loading = False
            if asking.done():
                with contextlib.suppress(httpx.HTTPError, OSError, ValueError, LookupError):
                    self.about = asking.result()
                    return
            await self.end()  # if it has not ended by itself
            # Why it ended is in its last line. What it has started may keep the pipe open for longer.
            await asyncio.wait({self._relaying}, timeout=_LAST_LINE_SECONDS)
            raise ModelEndedError(
                f"{model.name} cannot be loaded: {self._why()}", is_final=self.returncode in _FINAL
            )
        finally:
            await cancel(asking)

    async def end(self) -> int | None:
        if self._is_loading:  # no request waits for an answer, and its children end with it
            self.kill()
        return await super().end()

    def own_bytes(self) -> int:
        """Return the host memory of this process and its children in bytes, without mapped files."""
        try:
            process = psutil.Process(self.pid)
            infos = [each.memory_info() for each in (process, *process.children(recursive=True))]
        except (psutil.Error, OSError):  # it is ending; psutil lets a file that has just gone raise OSError
            return 0
        return sum(info.rss - getattr(info, "shared", 0) for info in infos)

    async def _begin(self, model: ServedModel) -> AboutModel:
        assert self.stdin
        order = {"listener": self._listener, "secret": self._secret, "options": dict(model.options)}
        with self.stdin:
            self.stdin.write(f"{json.dumps(order)}\n".encode())
        headers = {"Authorization": f"Bearer {forwarding_key(self._secret, ANYONE)}"}
        transport = LocalTransport(trust_env=False)
        async with httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            transport=transport,
            timeout=httpx.Timeout(None),
            trust_env=False,
        ) as client:
            # The process accepts connections once it is ready: until then this connection waits in its queue.
            models = await client.get("/v1/models")
            speculation = await client.get("/v1/speculation")
        # A model that makes vectors has no backs.
        vocabulary = speculation.json()["lead"]["vocabulary"]["fingerprint"] if speculation.is_success else ""
        return AboutModel(models.json()["data"][0], vocabulary)

    async def _relay_log(self, model: ServedModel) -> None:
        """Copy the process's log to the router's, with the model's name before each line."""
        assert self.stderr
        prefix = "" if model.options.get("log_json") else f"{one_line(model.name)}: "
        stream, rest = asyncio.StreamReader(), b""
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), self.stderr
        )
        while chunk := await stream.read(_MAX_LINE_BYTES):
            *lines, rest = (rest + chunk)[-_MAX_LINE_BYTES:].split(b"\n")
            for line in lines:
                text = sanitize(line.decode("utf-8", "replace"))
                say(prefix + text)
                self._last_line = text or self._last_line

    def _why(self) -> str:
        status = self.returncode or 0
        if status < 0:
            return f"its process ended with signal {-status}"
        return _LEVEL.sub("", self._last_line) or f"its process ended with status {status}"
