"""The base of every method's settings."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Frozen, and an unknown setting is an error; the default of a setting stands beside it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
