import sys

from lead.router.hub_cache import cached_models, remove_model
from shared.model_files.hub import Hub
from tests.shared.model_files.hub_server import REPOSITORY, SPLIT, fetch


def cached(cache):
    return {model.name: model for model in cached_models(Hub(cache=cache))}


def test_the_cache_is_listed_by_the_names_that_a_request_for_a_model_has(server, cache):
    server.repositories[REPOSITORY] |= {"toy.gguf": b"x", **{name: name.encode() for name in SPLIT[1:]}}
    for file in ("toy-Q4_K_M.gguf", "toy.gguf", SPLIT[1]):
        fetch(server, cache, file=file)
    models = cached(cache)
    assert set(models) == {f"{REPOSITORY}:{name}" for name in ("Q4_K_M", "toy", "Q8_0")}
    assert models[f"{REPOSITORY}:Q8_0"].path.name == "toy-Q8_0-00001-of-00003.gguf"


def test_without_a_cache_or_the_extra_nothing_is_listed(monkeypatch, cache):
    assert cached(cache) == {}
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert cached(cache) == {}


def test_a_model_is_deleted_with_all_its_parts_and_others_stay(server, cache):
    server.repositories[REPOSITORY] = {name: name.encode() for name in SPLIT}
    fetch(server, cache, f"{REPOSITORY}:Q8_0")
    kept = fetch(server, cache, f"{REPOSITORY}:Q4_0")
    remove_model(cached(cache)[f"{REPOSITORY}:Q8_0"].path)
    assert set(cached(cache)) == {f"{REPOSITORY}:Q4_0"}
    assert kept.read_bytes() == b"toy-Q4_0.gguf"
    blobs = [path for path in cache.rglob("blobs/*") if path.is_file()]
    assert len(blobs) == 1


def test_the_last_model_of_a_repository_takes_that_with_it(server, cache):
    fetch(server, cache, with_projector=True)
    remove_model(cached(cache)[f"{REPOSITORY}:Q4_K_M"].path)
    assert cached(cache) == {}
    assert not list(cache.glob("models--*"))
