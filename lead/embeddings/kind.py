"""A lead whose --model computes embeddings or ranks texts, and generates no text."""

from typing import TYPE_CHECKING

from lead.settings.lead_settings import LeadSettings
from shared.model_files.file_kind import pooling_of

if TYPE_CHECKING:
    from lead.embeddings.vector_lead import RoutedVectors, VectorLead


def kind(settings: LeadSettings, routed: "RoutedVectors | None") -> "VectorLead | None":
    """Return the lead for a --model that computes embeddings or ranks texts; None for other models.

    routed: the router's data if a router runs this lead. Raises ConfigError.
    """
    path = settings.source.model
    if path is None or not path.is_file() or pooling_of(path) is None:
        return None
    from lead.embeddings.vector_lead import VectorLead  # noqa: PLC0415 - other leads start faster

    return VectorLead(settings, path.absolute(), routed)
