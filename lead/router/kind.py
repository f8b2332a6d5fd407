"""The module for the seam `kind`: with `--models-dir` the lead is a router."""

from typing import TYPE_CHECKING

from lead.settings.lead_settings import LeadSettings

if TYPE_CHECKING:
    from lead.router.router import Router


def kind(settings: LeadSettings, _routed: object) -> "Router | None":
    """Return the router for `settings` with `--models-dir`; None without it. Raises ConfigError."""
    if settings.served.models_dir is None:
        return None
    from lead.router.router import Router  # noqa: PLC0415 - a lead with one model starts faster

    return Router(settings)
