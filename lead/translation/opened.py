"""The ring's module for the seam `opened`: offers the model's vocabulary."""

from fastapi import FastAPI

from lead.http.services import Services
from lead.translation.vocabulary_offer import VocabularyOffer


def opened(app: FastAPI, services: Services) -> None:
    """Register the offer; the file is written when the first back requests it."""
    app.state.vocabulary_offer = VocabularyOffer(services.vocabulary.info.path)
