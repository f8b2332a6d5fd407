"""`lead uninstall` lists the files of programs, and removes them after a confirmation."""

import io
import socket

import pytest

from lead.cli import main
from lead.os_service import uninstall_program as module
from shared.cached_files import hold_folder
from shared.errors import ConfigError

KEPT = {
    "data": ["lead-9/key.pem", "joined/back/lead.json", "conversations/talk.json", "odd"],
    "config": ["llama-duo-lead.toml"],
    "cache": ["memory/a.json"],
    "state": ["chat-history"],
}


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """The folders of programs, with files in them."""
    for kind in (*KEPT, "log"):
        folder = tmp_path / kind / "llama-duo"
        monkeypatch.setattr(module, f"user_{kind}_path", lambda _, folder=folder: folder)
        for name in KEPT.get(kind, ()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("x")
    return tmp_path


@pytest.fixture
def services(monkeypatch):
    """The services of the user and of the system, and the services that are removed."""
    of_user, of_system, removed = ["llama-duo-lead"], [], []
    monkeypatch.setattr(
        module, "installed_services", lambda *, is_system: of_system if is_system else of_user
    )
    monkeypatch.setattr(module, "remove_service", removed.append)
    return of_user, of_system, removed


@pytest.fixture
def run(monkeypatch, capsys, folders, services):  # noqa: ARG001 - nothing of this machine is touched
    def run(*options, answer=None):
        stdin = io.StringIO(answer or "")
        stdin.isatty = lambda: answer is not None
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("sys.argv", ["lead", "uninstall", *options])
        main()
        return capsys.readouterr().out

    return run


def remaining(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_it_says_what_there_is(run):
    out = run(answer="n\n")
    for words in (
        "service llama-duo-lead",
        "of the lead at port 9",
        "memberships",
        "conversations",
        "hf cache",
    ):
        assert words in out


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_without_a_yes_nothing_is_removed(run, folders, services, answer):
    before = remaining(folders)
    assert "Nothing was removed" in run(answer=answer)
    assert remaining(folders) == before
    assert services[2] == []


@pytest.mark.parametrize(("options", "answer"), [((), "y\n"), (("--yes",), None)])
def test_with_one_all_of_it_is(run, folders, services, options, answer):
    assert "All of it was removed." in run(*options, answer=answer)
    assert remaining(folders) == []
    assert services[2] == ["llama-duo-lead"]


def test_of_a_link_only_the_link_is_removed(run, folders):
    """The link may point to a cache on a bigger disk."""
    cache, elsewhere = folders / "cache" / "llama-duo", folders / "big-disk"
    cache.rename(elsewhere)
    cache.symlink_to(elsewhere)
    (folders / "data" / "llama-duo" / "lead-1").symlink_to(elsewhere)
    out = run("--yes")
    assert f"{cache} (a link; {elsewhere} is not removed)" in out
    assert remaining(folders) == ["a.json"]
    assert not cache.is_symlink()


def test_links_inside_are_not_followed(run, folders):
    (folders / "hub").mkdir()
    (folders / "hub" / "model.gguf").write_text("x")
    (folders / "cache" / "llama-duo" / "memory" / "hub").symlink_to(folders / "hub")
    run("--yes")
    assert remaining(folders) == ["model.gguf"]


def test_who_cannot_be_asked_is_told_of_the_option(run, folders):
    with pytest.raises(SystemExit, match="Add --yes"):
        run()
    assert remaining(folders)


def test_settings_of_a_service_that_cannot_be_stopped_stay(run, folders, monkeypatch):
    def fail(_):
        raise ConfigError("systemctl: Failed to connect to bus")

    monkeypatch.setattr(module, "remove_service", fail)
    with pytest.raises(SystemExit, match="service llama-duo-lead: systemctl: Failed to connect"):
        run("--yes")
    assert remaining(folders) == ["llama-duo-lead.toml"]


def test_files_of_a_lead_that_runs_stay(run, folders):
    """The lead may listen at any address."""
    lead = hold_folder(folders / "data/llama-duo/lead-9")
    with pytest.raises(SystemExit, match="lead-9: a running lead uses it"):
        run("--yes")
    lead.close()
    assert remaining(folders) == ["key.pem"]


def test_another_program_at_the_port_of_a_lead_keeps_no_files(run, folders):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        (folders / "data/llama-duo/lead-9").rename(folders / f"data/llama-duo/lead-{port}")
        assert "All of it was removed." in run("--yes")


def test_a_service_of_the_system_is_only_named(run, services):
    services[1].append("llama-duo-back")
    assert "sudo lead service remove --system --unit llama-duo-back" in run("--yes")


def test_where_nothing_is_kept_there_is_nothing_to_ask(run, services):
    services[0].clear()
    run("--yes")
    assert "Nothing is kept on this machine." in run()
