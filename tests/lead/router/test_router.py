"""The router reads files outside its event loop. tests/real/test_models.py runs it as a program."""

import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from lead.router.router import Router
from lead.settings.lead_settings import LeadSettings
from shared.model_files.builtin import builtin_draft
from tests.lead.http.middleware.asgi import asgi_request


class FileWatch:
    """Records the files of a folder that are opened, and the threads that do it."""

    def __init__(self, folder):
        self.folder = folder
        self.is_on = False
        self.threads = set()
        sys.addaudithook(self._note)

    def _note(self, event, arguments):
        if self.is_on and event in {"open", "os.listdir", "os.scandir"}:
            self.note(arguments[0])

    def note(self, path):
        if isinstance(path, str | os.PathLike) and self.folder in (Path(path), *Path(path).parents):
            self.threads.add(threading.get_ident())


@pytest.fixture
def watch(tmp_path, monkeypatch):
    watch, stat = FileWatch(tmp_path), Path.stat

    def noted(path, **options):
        watch.note(path)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", noted)
    watch.is_on = True
    yield watch
    watch.is_on = False


@pytest.fixture
async def router(tmp_path):
    for name in "ab":
        shutil.copy(builtin_draft(), tmp_path / f"{name}.gguf")
    (tmp_path / "models.toml").write_text("[a]\nalias = 'x'\n")
    router = Router(LeadSettings.from_options(models_dir=tmp_path))
    yield router
    await router._host.stop()
    await router._forwarder.close()


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("GET", "/v1/models", b""),
        ("GET", "/v1/models", b"reload=1"),
        ("GET", "/v1/models/a", b""),
        ("GET", "/api/tags", b""),
        ("POST", "/api/show", b"model=a"),
    ],
)
async def test_files_are_read_beside_the_event_loop(router, watch, method, path, query):
    status, _, _ = await asgi_request(router.app, method, path, {"host": "localhost"}, query=query)
    assert status == 200
    assert watch.threads
    assert threading.get_ident() not in watch.threads


async def test_a_model_that_is_put_into_the_folder_is_found(router, tmp_path):
    shutil.copy(builtin_draft(), tmp_path / "c.gguf")
    await asgi_request(router.app, "GET", "/v1/models", {"host": "localhost"}, query=b"reload=1")
    assert set("abc") <= set(router._host.models)
