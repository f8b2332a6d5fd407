"""The report of `lead models show`: sizes, context, whether it fits here, and matching draft models."""

from collections.abc import Iterable, Iterator

from lead.router.catalog import KnownModel
from lead.router.memory_need import MemoryNeed, memory_need
from lead.router.models_file import ServedModel
from lead.settings.vector_models import max_text_tokens
from shared.diagnostics.preflight import describe
from shared.errors import ConfigError, ModelLoadError
from shared.free_memory import free_memory
from shared.llama.placement import CPU
from shared.llama.vocabulary import Vocabulary
from shared.model_files.file_kind import RANK, parts_of, pooling_of, size_of
from shared.terminal import one_line, size_text
from shared.translation.stored_pair import stored_pair

_LARGEST_DRAFT = 0.5
"""A draft model of at least this size, relative to the target's, hardly gives a gain."""


def model_report(model: ServedModel, others: Iterable[KnownModel]) -> str:
    """Return a report of several lines; raises ConfigError. others: candidates for draft models."""
    path = model.path
    if path is None:
        raise ConfigError(
            f"{model.name} is not on this machine. Download it: lead models pull {model.options['hf_repo']}"
        )
    parts = parts_of(path)
    n_bytes = size_of(path)
    pooling = pooling_of(path)
    vocabulary = Vocabulary.load(path, writes_text=pooling is None)
    need = memory_need(model.settings, {})
    more = f" and {len(parts) - 1} more" if len(parts) > 1 else ""
    lines = [
        ("file", f"{path}{more}, {size_text(n_bytes)}"),
        ("model", describe(vocabulary.info)),
        ("images", model.settings.images.describe() or "none, text only"),
        *_about_texts(model, vocabulary, need, pooling),
        *(("memory", line) for line in _fits(need)),
        *(("draft", line) for line in _drafts(vocabulary, n_bytes, others) if pooling is None),
    ]
    return "\n".join([one_line(model.name), *(f"  {topic:<8} {one_line(text)}" for topic, text in lines)])


def _about_texts(
    model: ServedModel, vocabulary: Vocabulary, need: MemoryNeed, pooling: int | None
) -> Iterator[tuple[str, str]]:
    n_trained = vocabulary.info.n_ctx_train
    if pooling is None:
        yield (
            "context",
            f"{need.n_ctx_of_request(n_trained)} tokens for one request; trained with {n_trained}",
        )
        return
    yield "serves", "/v1/rerank" if pooling == RANK else "/v1/embeddings"
    n_tokens = max_text_tokens(model.settings.vectors.embedding_ctx_size, n_trained)
    yield "context", f"texts of up to {n_tokens} tokens"


def _fits(need: MemoryNeed) -> Iterator[str]:
    free = {CPU: free_memory(), **need.free}
    for place, n_bytes in need.sizes.items():
        verdict = "fits" if n_bytes <= free[place] else "DOES NOT FIT"
        needed, left = size_text(n_bytes), size_text(free[place])
        yield f"{verdict}: {needed} on {place}, prompt cache included; {left} free"


def _drafts(target: Vocabulary, n_bytes: int, others: Iterable[KnownModel]) -> Iterator[str]:
    for other in others:
        try:
            yield f"{other.name}: {_pairing(target, n_bytes, other)}"
        except ModelLoadError as error:
            yield f"{other.name}: no: {error}"


def _pairing(target: Vocabulary, n_bytes: int, other: KnownModel) -> str:
    """Return whether and how `other` can draft, as text; raises ModelLoadError."""
    if other.n_bytes > _LARGEST_DRAFT * n_bytes:
        return f"no: with {size_text(other.n_bytes)} it is too large for a draft model"
    draft = Vocabulary.load(other.path)
    if draft.identify().fingerprint == target.identify().fingerprint:
        return "yes, with the same vocabulary"
    share = stored_pair(draft, target).share_exact
    return f"yes, translated: {100 * share:.0f} % of its tokens are tokens of this model"
