"""Tests mirror the tree: lead/engine/slot.py is tested by tests/lead/engine/test_slot.py."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = (
    *("lead", "back", "chat", "fleet", "shared"),
    *("lab/doctor", "lab/measuring", "lab/planning", "lab/simulation"),
)
COVERED_BY: dict[str, tuple[str, ...]] = {
    "tests/test_ways_in.py": ("shared/way_in.py",),
    "tests/lead/metrics/test_model_routes.py": ("lead/metrics/opened.py",),
    "tests/lead/translation/test_model_routes.py": ("lead/translation/opened.py",),
    "tests/real/test_models.py": (
        "lead/router/kind.py",
        "lead/router/model_lead.py",
    ),
    "tests/lead/router/test_models_program.py": ("lead/router/model_report.py",),
    "tests/lead/server/test_app.py": ("lead/http/application.py",),
    "tests/real/test_ray_fleet.py": (
        "fleet/app.py",
        "fleet/back_pool.py",
        "fleet/messages.py",
        "fleet/lead_replica.py",
        "fleet/lead_router.py",
    ),
    "tests/lead/http/test_side_models.py": (
        "lead/apis/ollama/shown_models.py",
        "lead/metrics/side_metrics.py",
    ),
    "tests/lead/apis/ollama/test_model_routes.py": (
        "lead/apis/ollama/ollama_request.py",
        "lead/apis/ollama/ollama_render.py",
    ),
    "tests/shared/heads/test_eagle_heads.py": ("shared/heads/hidden_sources.py",),
    "tests/shared/heads/test_mtp_heads.py": ("shared/heads/mtp_batch.py",),
    "tests/shared/memory/test_model_outline.py": ("shared/llama/memory_size.py", "shared/llama/unbound.py"),
    "tests/shared/memory/test_context_choice.py": ("shared/llama/memory_plan.py",),
    "tests/shared/placement/test_layer_search.py": ("shared/llama/placement.py",),
    "tests/chat/test_client.py": ("chat/errors.py", "chat/wire.py"),
    "tests/chat/test_repl.py": ("chat/session.py",),
    "tests/lead/chat_format/test_parser.py": (
        "lead/tools/literal_scanner.py",
        "lead/chat_format/markers.py",
        "lead/chat_format/deltas.py",
        "lead/tools/call_reader.py",
        "lead/tools/json_stream.py",
    ),
    "tests/lead/chat_format/test_template.py": (
        "lead/chat_format/jinja.py",
        "lead/tools/call_support.py",
        "shared/llama/builtin_templates.py",
    ),
    "tests/lead/chat_format/test_answer_probes.py": ("lead/chat_format/probes.py",),
    "tests/real/test_without_rings.py": ("lead/chat_format/calls.py", "lead/engine/engine_parts.py"),
    "tests/lead/engine/drafters/test_model_drafter.py": ("lead/engine/drafters/draft_source.py",),
    "tests/lead/engine/speculation/test_manager.py": ("lead/engine/speculation/speculation_stats.py",),
    "tests/lead/engine_client/test_engine_client.py": (
        "lead/engine_client/engine_state.py",
        "lead/engine/worker.py",
    ),
    "tests/lead/engine/test_commands.py": ("lead/engine/events.py",),
    "tests/lead/engine/test_target_loading.py": ("lead/engine/engine_limits.py",),
    "tests/lead/images/test_image_encoder.py": (
        "lead/images/image_encoder_process.py",
        "lead/images/image_reader.py",
        "lead/images/messages.py",
        "lead/images/projector.py",
    ),
    "tests/lead/infill/test_infill.py": ("lead/infill/gap.py",),
    "tests/lead/attention/test_attention_probe.py": ("lead/attention/before_load.py",),
    "tests/lead/disk_cache/test_kept_texts.py": ("lead/disk_cache/in_engine.py",),
    "tests/real/test_rpc.py": ("shared/rpc/rpc_backend.py",),
    "tests/real/test_seen_texts.py": ("lead/suffix/in_engine.py",),
    "tests/lead/embeddings/test_model_routes.py": ("lead/embeddings/embedding_requests.py",),
    "tests/lead/embeddings/test_encoder_client.py": (
        "lead/embeddings/encoder_process.py",
        "lead/embeddings/encoder_program.py",
    ),
    "tests/lead/embeddings/test_vector_lead.py": (
        "lead/apis/ollama/side_routes.py",
        "lead/metrics/side_routes.py",
        "lead/embeddings/kind.py",
        "lead/embeddings/vector_routes.py",
    ),
    "tests/real/test_embeddings.py": ("lead/embeddings/companions.py",),
    "tests/lead/engine/test_side_jobs.py": ("lead/engine/question.py",),
    "tests/lead/engine/test_loop.py": ("lead/engine/target.py",),
    "tests/lead/grammar/test_json_schema.py": ("lead/grammar/references.py",),
    "tests/lead/http/routes/test_chat.py": ("lead/http/render/openai.py",),
    "tests/lead/apis/anthropic/test_model_routes.py": ("lead/apis/anthropic/anthropic_render.py",),
    "tests/lead/http/routes/test_native.py": ("lead/http/render/llama_server.py",),
    "tests/lead/apis/responses/test_model_routes.py": ("lead/apis/responses/responses_render.py",),
    "tests/lead/metrics/test_exporter.py": ("lead/metrics/sequence_metrics.py",),
    "tests/lab/measuring/test_bench_program.py": ("lab/measuring/running_lead.py",),
    "tests/lab/measuring/test_bench_report.py": ("lead/text_table.py",),
    "tests/lab/measuring/test_measured_answer.py": ("lab/measuring/answer.py",),
    "tests/lab/measuring/test_questions.py": ("lab/measuring/builtin_questions.py",),
    "tests/lab/planning/test_plan_program.py": ("lab/planning/timing.py",),
    "tests/lab/simulation/test_cell.py": ("lab/simulation/simulated_lead.py",),
    "tests/lead/server/test_server.py": ("lead/http/services.py",),
    "tests/lead/tokenizer/test_job_handler.py": (
        "lead/tokenizer/tokenizer_program.py",
        "lead/tokenizer/workers.py",
    ),
    "tests/lead/settings/test_lead_settings.py": ("lead/settings/conversation.py",),
    "tests/shared/os_service/test_service_program.py": ("lead/os_service/lead_service.py",),
    "tests/back/test_settings.py": ("shared/settings/server_url.py",),
    "tests/shared/diagnostics/test_preflight.py": (
        "back/check.py",
        "lead/diagnostics/check.py",
        "lead/settings/placed_load.py",
    ),
    "tests/shared/drafting/test_drafter.py": ("shared/drafting/interfaces.py",),
    "tests/shared/llama/test_batch_layout.py": ("shared/llama/span.py",),
    "tests/shared/llama/test_model.py": ("shared/llama/memory_traits.py", "shared/llama/batch.py"),
    "tests/shared/translation/test_lattice.py": ("shared/translation/projection.py",),
    "tests/shared/sampling/test_grammar_worker.py": (
        "shared/sampling/grammar_budget.py",
        "shared/sampling/grammar_handler.py",
    ),
    "tests/shared/test_tls.py": ("shared/tls_failures.py",),
    "tests/shared/sampling/test_sampler.py": ("shared/errors.py", "shared/sampling/parameters.py"),
    "tests/shared/convert/test_grow.py": ("shared/convert/gguf_file.py",),
    "tests/shared/model_files/test_model_file.py": ("shared/progress.py",),
    "tests/shared/settings/test_base.py": ("shared/settings/sources.py", "shared/settings/options.py"),
    "tests/lead/chat_format/test_request.py": ("lead/chat_format/request_parts.py",),
    "tests/lead/chat_format/test_corpus.py": ("lead/tools/known_formats.py",),
    "tests/lab/planning/test_hardware_plan.py": ("lab/simulation/places.py",),
    "tests/lead/engine/speculation/test_policy.py": ("lead/engine/speculation/batching.py",),
}
"""Modules without a test file of their own, by the test that covers them."""


def modules():
    return sorted(
        path.relative_to(ROOT)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.name not in {"__init__.py", "__main__.py"}  # the latter: test_ways_in.py
    )


def has_functions(module):
    """Return whether a module has functions. Declarations of names, types and fields need no test."""
    tree = ast.parse((ROOT / module).read_text())
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree))


def own_tests(module):
    """The two paths of a module's test: under its own name, and under its folder's name."""
    folder = Path("tests") / module.parent
    return folder / f"test_{module.name}", folder.with_name(f"test_{folder.name}.py")


def has_own_test(module):
    return any((ROOT / test).is_file() for test in own_tests(module))


def test_every_module_has_a_test_file_of_its_name():
    covered = {Path(module) for listed in COVERED_BY.values() for module in listed}
    missing = [m for m in modules() if has_functions(m) and not has_own_test(m) and m not in covered]
    expected = "\n".join(f"{own_tests(module)[0]} for {module}" for module in missing)
    assert not missing, f"add these test files, or name the test that covers it in COVERED_BY:\n{expected}"


def test_what_is_listed_as_covered_needs_to_be():
    for test, listed in COVERED_BY.items():
        assert (ROOT / test).is_file(), f"{test} has moved: correct COVERED_BY"
        for module in map(Path, listed):
            assert (ROOT / module).is_file(), f"{module} has moved: correct COVERED_BY"
            assert not has_own_test(module), f"{module} has a test of its own: remove it from COVERED_BY"
