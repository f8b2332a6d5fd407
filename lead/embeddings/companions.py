"""The models of --embedding-model and --rerank-model, which run beside the model that generates text."""

from lead.embeddings.vector_model import VectorModels
from lead.server.site import Companion, Site


def companions(site: Site) -> list[Companion]:
    if not site.settings.vectors.asked:
        return []
    models = VectorModels.beside(site.settings)
    models.serve_in(site.app)
    return [models]
