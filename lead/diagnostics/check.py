"""`lead --check`: reports the model that the lead would serve, and the problems that would prevent it."""

import contextlib
import sys
from pathlib import Path

from lead.engine.inline_sources import planned_source
from lead.engine.target_loading import options_of_target, plan_target
from lead.router.catalog import find_models
from lead.router.models_file import served_models
from lead.server.listening import listen
from lead.settings.draft_model import DraftModelOptions, OwnBackOptions
from lead.settings.lead_settings import LeadSettings
from lead.settings.placed_load import placed_load
from lead.settings.vector_models import COMPUTING_BYTES, max_text_tokens
from shared.diagnostics.findings import exit_with
from shared.diagnostics.preflight import (
    PreflightReport,
    check_cores,
    check_memory,
    describe,
    list_devices,
    locate,
    quantization,
    read_model,
)
from shared.diagnostics.prospects import Prospect, prospect_of_weights
from shared.errors import ConfigError, ModelLoadError
from shared.exits import print_text
from shared.free_memory import free_memory
from shared.heads.eagle_heads import why_no_target
from shared.heads.mtp_heads import is_heads_file
from shared.llama import devices
from shared.llama.devices import METAL
from shared.llama.memory_plan import MemoryPlan
from shared.llama.model_info import ModelInfo
from shared.llama.native_parameters import is_offloaded
from shared.llama.placement import Placement
from shared.llama.vocabulary import Vocabulary
from shared.memory.texts_kept import describe_checkpoints, describe_prompt_cache
from shared.model_files.builtin import builtin_target
from shared.model_files.file_kind import RANK, is_eagle_file, pooling_of
from shared.model_files.projector_file import check_fits
from shared.rpc.rpc_probe import ForeignWorkerError, WorkerAwayError, probe
from shared.settings.model_source import ModelSource
from shared.terminal import size_text
from shared.translation.other_vocabulary import describe_translation
from shared.translation.stored_pair import stored_pair

_PROBE_SECONDS = 3.0


def exit_with_report(settings: LeadSettings) -> None:
    """Print the report of --list-devices or --check and exit, if the settings request one."""
    if settings.list_devices:
        print_text(list_devices())
        sys.exit()
    if settings.check:
        exit_with(check(settings))


def check(settings: LeadSettings) -> PreflightReport:
    """Check the settings. Loads vocabularies and opens the port for a moment; raises nothing."""
    report = PreflightReport()
    if settings.served.models_dir is not None:
        _check_models(report, settings)
        _check_address(report, settings)
        return report
    _check_vector_models(report, settings)
    if (path := _own_path(settings.source)) and pooling_of(path) is not None:
        _add_vector_model(report, "model", path, settings, settings.compute.n_gpu_layers)
        _check_address(report, settings)
        return report
    with read_model(report, _with_default(report, settings.source)) as vocabulary:
        if vocabulary:
            images = settings.images_of(vocabulary.info.path)
            settings = settings.model_copy(update={"images": images})
            _check_images(report, vocabulary, settings)
            _check_memory(report, vocabulary, settings)
    check_cores(report, settings.cpus, lambda: settings.n_threads, _tried_threads(settings))
    _check_address(report, settings)
    _check_workers(report, settings)
    _check_draft_model(report, settings, vocabulary)
    _check_back(report, settings, vocabulary)
    return report


def _with_default(report: PreflightReport, source: ModelSource) -> ModelSource:
    """Return the source; if it names no model, the model that is then served."""
    if source.model is None and source.hf_repo is None:
        try:
            return source.model_copy(update={"model": builtin_target()})
        except ConfigError as error:
            report.problems.append(str(error))
    return source


def _own_path(source: ModelSource) -> Path | None:
    """Return the model's file, if it is on this machine."""
    if source.hf_repo is None:
        return source.model
    with contextlib.suppress(ConfigError):
        return source.model_copy(update={"offline": True}).located().model
    return None


def _check_models(report: PreflightReport, settings: LeadSettings) -> None:
    """Report the models of a router, and check their options; `lead models show` reports more."""
    try:
        models = served_models(settings, find_models(settings.served.models_dir), 0)
    except ConfigError as error:
        report.problems.append(str(error))
        return
    report.add("models", ", ".join(models) or "none yet")
    if pinned := [model.name for model in models.values() if model.pinned]:
        report.add("pinned", ", ".join(pinned))


def _check_vector_models(report: PreflightReport, settings: LeadSettings) -> None:
    try:
        found = settings.vectors.located()
    except ConfigError as error:
        report.problems.append(str(error))
        return
    if found.serve_embeddings:
        report.add("embeddings", "means of this model's hidden states")
    for topic, path in (("embedding model", found.embedding_model), ("rerank model", found.rerank_model)):
        if path:
            _add_vector_model(report, topic, path, settings, found.embedding_gpu_layers)


def _add_vector_model(
    report: PreflightReport, topic: str, path: Path, settings: LeadSettings, n_gpu_layers: int
) -> None:
    try:
        info = Vocabulary.load(path, writes_text=False).info
    except ConfigError as error:
        report.problems.append(str(error))
        return
    report.add(topic, str(path))
    does = "reranks texts" if pooling_of(path) == RANK else "embeds texts"
    n_tokens = max_text_tokens(settings.vectors.embedding_ctx_size, info.n_ctx_train)
    report.add("", f"{describe(info)}; {does} of up to {n_tokens} tokens")
    n_needed = info.size + COMPUTING_BYTES
    gpus = devices.own_gpus() if n_gpu_layers else []
    n_free = sum(device.free for device in gpus) if gpus else free_memory()
    if n_needed > n_free:
        report.problems.append(
            f"{path} needs {size_text(n_needed)} of memory, but only {size_text(n_free)} are free. "
            "Use a smaller model"
        )


def _check_images(report: PreflightReport, vocabulary: Vocabulary, settings: LeadSettings) -> None:
    projector = settings.images.mmproj
    if projector is None:
        return
    try:
        check_fits(vocabulary.info.path, projector)
    except ModelLoadError as error:
        report.problems.append(str(error))
    else:
        report.add("images", settings.images.describe())


def _check_memory(report: PreflightReport, vocabulary: Vocabulary, settings: LeadSettings) -> None:
    load = placed_load(settings, vocabulary.info.path)
    others = ["draft model"] * bool(load.draft)
    others += ["images"] * bool(settings.images.cache_bytes) + ["vectors"] * bool(settings.vectors.n_bytes)
    if load.rpc:  # their devices are not here
        load = load.model_copy(update={"options": load.options.model_copy(update={"device": ()})})

    def make_plan() -> MemoryPlan:
        return plan_target(load, planned_source(load), *options_of_target(load.options))

    plan = check_memory(report, make_plan, load.taken, ", ".join(others))
    if plan and plan.placement:
        report.add("drafts", prospect_of(plan.placement, vocabulary.info).value)
    if plan and (checkpoints := describe_checkpoints(plan.context.traits, load.options)):
        report.add("checkpoints", checkpoints)
    if plan and plan.prompt_cache.n_bytes and not load.rpc:
        report.add("prompt cache", describe_prompt_cache(plan.prompt_cache))


def prospect_of(placement: Placement, info: ModelInfo) -> Prospect:
    """Return the speed-up to expect from drafts, estimated without running the model."""
    on_metal = placement.n_gpu_layers and any(each.name.startswith(METAL) for each in placement.devices)
    return prospect_of_weights(
        placement.cpu_weights,
        is_mixture=placement.is_mixture,
        has_metal_k_quants=bool(on_metal) and "_K" in quantization(info),
    )


def _check_address(report: PreflightReport, settings: LeadSettings) -> None:
    try:
        settings.security.keyring()
        listen(settings.host, settings.port).close()
    except ConfigError as error:
        report.problems.append(str(error))
    keys = (
        "with keys"
        if settings.security.has_keys
        else "no keys: anyone who can reach this address can use the lead"
    )
    report.add("address", f"{settings.host} port {settings.port}, {keys}")


def _tried_threads(settings: LeadSettings) -> int:
    """Return the number of threads that the engine uses if it measures that they are faster; 0: none."""
    is_fixed = settings.compute.exact != "off" or settings.own_back.is_wanted or settings.workers.rpc
    return 0 if is_fixed or is_offloaded(settings.compute) else settings.max_threads


def _check_workers(report: PreflightReport, settings: LeadSettings) -> None:
    try:
        settings.workers.check_built()
    except ConfigError as error:
        report.problems.append(str(error))
        return
    with contextlib.ExitStack() as held:  # so that two addresses are two workers
        for address in settings.workers.rpc:
            try:
                held.enter_context(probe(address, _PROBE_SECONDS))
                report.add("RPC worker", f"{address} answers")
            except (WorkerAwayError, ForeignWorkerError) as error:
                report.problems.append(str(error))


def _check_draft_model(
    report: PreflightReport, settings: LeadSettings, vocabulary: Vocabulary | None
) -> None:
    drafting = settings.drafting
    if drafting.draft_model and is_heads_file(drafting.draft_model):
        report.add("draft model", f"{drafting.draft_model}, heads of the model (MTP), in the engine")
        return
    if drafting.draft_model and is_eagle_file(drafting.draft_model):
        report.add("draft model", f"{drafting.draft_model}, an EAGLE-3 drafter, in the engine")
        if vocabulary and (reason := why_no_target(vocabulary.info.architecture)):
            report.problems.append(f"--draft-model: {reason}")
        return
    if drafting.is_wanted and (draft := _draft(report, "--draft-model", drafting, settings)):
        report.add("draft model", f"{describe(draft.info)}, in the engine")
        _add_translation(report, draft, vocabulary)


def _draft(
    report: PreflightReport,
    option: str,
    source: DraftModelOptions | OwnBackOptions,
    settings: LeadSettings,
) -> Vocabulary | None:
    """Return the vocabulary of a draft model; None if it cannot be loaded. Adds problems."""
    try:
        with locate(source.source(settings.source)) as found:
            if found is None:
                return None
            return found.vocabulary
    except ConfigError as error:
        report.problems.append(f"{option}: {error}")
        return None


def _add_translation(report: PreflightReport, draft: Vocabulary, vocabulary: Vocabulary | None) -> None:
    """Add a line below a draft model if it has another vocabulary than the target."""
    if vocabulary and draft.identify().fingerprint != vocabulary.identify().fingerprint:
        report.add("", describe_translation(draft, vocabulary, stored_pair(draft, vocabulary)))


def _check_back(report: PreflightReport, settings: LeadSettings, vocabulary: Vocabulary | None) -> None:
    own_back = settings.own_back
    if not own_back.is_wanted:
        report.add("backs", "the lead starts no back; other backs may connect")
        return
    if draft := _draft(report, "--back", own_back, settings):
        report.add("backs", f"{describe(draft.info)}, on {own_back.back_cpus or 'any core'}")
        _add_translation(report, draft, vocabulary)
