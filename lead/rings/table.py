"""The table of the lead's rings: features beyond serving one model, over OpenAI's API, with drafts
of backs.
"""

RINGS = (
    "lead.router",
    "lead.apis.responses",
    "lead.apis.anthropic",
    "lead.disk_cache",
    "lead.pairing",
    "lead.apis.ollama",
    "lead.translation",
    "shared.translation",
    "lead.heads",
    "lead.exact",
    "lead.infill",
    "lead.metrics",
    "lead.rpc",
    "lead.attention",
    "lead.suffix",
    "lead.tools",
    "lead.embeddings",
    "lead.images",
)
"""Packages. `shared.seams` plugs them in. tests/test_wall.py keeps the core free of them.

Seams:
    kind             a program other than a lead with one model (`lead.cli`)
    routes           has a `router` with endpoints of a lead with one model, and of one with --models-dir
    model_routes     has a `router` with endpoints of a lead with one model
    side_routes      has a `router` with endpoints of a lead for embeddings, which lacks the two above
    opened           is called when the vocabulary has been read (`lead.server.app`)
    before_load      in the engine's process: changes the load, or waits for what it needs
    inline_source    drafts in the engine, and delays its steps (`lead.engine.inline_sources`)
    target_loader    loads the target (`lead.engine.target_loading`)
    other_vocabulary drafts for texts in another vocabulary (`shared.drafting.drafter_maker`)
    call_support     reads and writes calls of tools (`lead.chat_format.calls`)
    image_reader     reads images for the model (`lead.server.server`)
    in_engine        adds to what the engine's process does (`lead.engine.engine_parts`)
    companions       run beside the server of a lead with a text model or --models-dir, or set values in its
                     `app.state` and return [] (`lead.server.site`)
"""
