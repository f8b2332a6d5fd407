"""The model to load: a file, or a model of the Hugging Face hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from shared.errors import ConfigError
from shared.model_files.builtin import named_model
from shared.model_files.damaged_file import why_unreadable
from shared.model_files.file_kind import read_name
from shared.model_files.hub import Hub, HubModel
from shared.model_files.model_file import loadable, pending_conversion
from shared.model_files.near_models import no_such_model
from shared.settings.options import OptionError, OptionGroup

if TYPE_CHECKING:  # see `shared.model_files.model_file`
    from shared.convert.conversion import Conversion


def _check_repository(value: str) -> str:
    HubModel.parse(value)
    return value


HubRepository = Annotated[str, AfterValidator(_check_repository)]
"""USER/REPO[:QUANT]."""


def find_named(value: Path) -> Path:
    """Return the path for a built-in model's name (`named_model`), or the path itself; raises ValueError."""
    try:
        value.exists()  # not whether it does, but whether the system can say so
        return named_model(value)
    except OSError as error:
        raise ValueError(why_unreadable(error)) from None
    except ConfigError as error:
        raise ValueError(str(error)) from None


ModelPath = Annotated[Path, AfterValidator(find_named)]
"""A path, or the name of a model that is in a package: smollm2, smollm2-draft."""


class ModelSource(OptionGroup):
    """Options of lead and back for the model; if none is set, the built-in demo model is used."""

    model: ModelPath | None = Field(
        None,
        description="path of the model: a GGUF file, a llama2.c checkpoint (.bin) or a Hugging Face "
        "folder with GPT-2; smollm2 or smollm2-draft: a model of the pip extra smollm2. Default: "
        "the program's built-in demo model",
    )
    tokenizer: Path | None = Field(
        None,
        description="tokenizer.bin of a llama2.c checkpoint. Default: tokenizer.bin in the folder of the "
        "checkpoint",
    )
    hf_repo: HubRepository | None = Field(
        None,
        description="Hugging Face model repository, USER/REPO[:QUANT], instead of --model. Default QUANT: "
        "Q4_K_M, else Q8_0, else the first file of the repository",
    )
    hf_file: str | None = Field(
        None, description="file of the repository of --hf-repo to load, instead of QUANT"
    )
    hf_token: SecretStr | None = Field(
        None,
        description="Hugging Face access token for private repositories. The variable HF_TOKEN hides the "
        "token from process listings",
    )
    offline: bool = Field(
        False, description="use only models in the Hugging Face cache, without network access"
    )

    @model_validator(mode="after")
    def _check_one_source(self) -> Self:
        if self.hf_repo is not None and self.model is not None:
            raise OptionError("hf_repo", "cannot be combined with --model")
        if self.hf_file is not None and self.hf_repo is None:
            raise OptionError("hf_file", "needs a repository: -hf USER/REPO")
        return self

    def located(self, *, with_projector: bool = False) -> Self:
        """Return the source with a `model` file to load: checked, converted or downloaded.

        Raises ConfigError. with_projector: also download the model's projector, if there is one.
        """
        if self.hf_repo is None:
            if self.model is None:
                return self
            if not self.model.exists() and read_name(self.model.name) is None:
                raise ConfigError(no_such_model(self.model, self._hub))
            return self.model_copy(update={"model": loadable(self.model, self.tokenizer)})
        path = self.fetched(HubModel.parse(self.hf_repo, self.hf_file), with_projector=with_projector)
        return self.model_copy(update={"model": path, "hf_repo": None, "hf_file": None})

    def pending_conversion(self) -> "Conversion | None":
        """Return the conversion that `located` would do; None if there is nothing to do. Raises
        ConfigError.
        """
        return None if self.model is None else pending_conversion(self.model, self.tokenizer)

    def fetched(self, model: HubModel, *, with_projector: bool = False) -> Path:
        """Return the path of `model` on this machine, downloaded if needed; raises ConfigError."""
        return self._hub.fetch(model, with_projector=with_projector)

    @property
    def _hub(self) -> Hub:
        return Hub(self.hf_token.get_secret_value() if self.hf_token else None, self.offline)
