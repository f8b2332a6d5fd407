"""Offers the model's vocabulary."""

from fastapi import FastAPI

from lead.http.services import Services
from lead.translation.vocabulary_offer import VocabularyOffer


def opened(app: FastAPI, services: Services) -> None:
    """Make nothing yet: the file is written when the first back asks for it."""
    app.state.vocabulary_offer = VocabularyOffer(services.vocabulary.info.path)
