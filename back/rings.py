"""The rings of a back: optional features beyond drafting in its model's own vocabulary."""

RINGS = (
    "back.translation",
    "shared.translation",
)
"""The rings' packages. `shared.seams` plugs them in; tests/test_wall.py checks that the core imports none.

Seams:
    vocabulary_download  gets the vocabulary of a lead (`back.program`)
    other_vocabulary     drafts for texts in another vocabulary (`shared.drafting.drafter_maker`)
"""
