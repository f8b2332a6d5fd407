"""Models of --embedding-model and --rerank-model beside the one that continues texts."""

from lead.embeddings.vector_model import VectorModels
from lead.server.site import Companion, Site


def companions(site: Site) -> list[Companion]:
    if not site.settings.vectors.asked:
        return []
    models = VectorModels.beside(site.settings)
    models.serve_in(site.app)
    return [models]
