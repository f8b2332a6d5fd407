"""The rings of a back: optional features beyond drafting in its model's own vocabulary."""

RINGS = (
    "back.translation",
    "shared.translation",
)
"""Packages. `shared.seams` plugs them in, and tests/test_wall.py checks that the core does not import them.

Seams:
    vocabulary_download  gets the vocabulary of a lead (`back.program`)
    other_vocabulary     drafts for texts in another vocabulary (`shared.drafting.drafter_maker`)
"""
