"""Which model: a file, or one from the hub. What lead and back set alike."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from shared.models.hub import Hub, HubModel
from shared.models.split import parts_of


class ModelSource(BaseModel):
    """Mixed into the settings of lead and back, each of which describes `model` itself."""

    model_config = ConfigDict(frozen=True)

    model: Path | None = None
    hf_repo: str | None = Field(
        None,
        description="a model from the Hugging Face hub, USER/REPO[:QUANT], in place of --model; without "
        "QUANT: Q4_K_M, or Q8_0, or the first",
    )
    hf_file: str | None = Field(None, description="the file in that repository, in place of QUANT")
    hf_token: SecretStr | None = Field(
        None, description="for private repositories; HF_TOKEN keeps it out of `ps`"
    )
    offline: bool = Field(False, description="take what the hub's cache has")

    @field_validator("hf_repo")
    @classmethod
    def _check_repository(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            HubModel.parse(value)
            if info.data.get("model") is not None:
                raise ValueError("there is a --model, too: name one of them")
        return value

    @field_validator("hf_file")
    @classmethod
    def _check_has_repository(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("hf_repo") is None:
            raise ValueError("name its repository with -hf USER/REPO")
        return value

    def located(self) -> Self:
        """The same settings with a `model` that is there: checked, or downloaded. Raises ConfigError."""
        if self.hf_repo is None:
            if self.model is not None:
                parts_of(self.model)
            return self
        path = self.fetched(HubModel.parse(self.hf_repo, self.hf_file))
        return self.model_copy(update={"model": path, "hf_repo": None, "hf_file": None})

    def fetched(self, model: HubModel) -> Path:
        """Where `model` is on this machine, downloaded if need be; raises ConfigError."""
        token = self.hf_token.get_secret_value() if self.hf_token else None
        return Hub(token, self.offline).fetch(model)
