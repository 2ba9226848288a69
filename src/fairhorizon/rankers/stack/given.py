"""Settings of single rankers that are given, and so are not chosen on the log."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from fairhorizon.rankers.ease import Ease
from fairhorizon.rankers.gru4rec import Gru4Rec
from fairhorizon.rankers.itemknn import ItemKnn
from fairhorizon.rankers.popularity import Popularity
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.ridge import Ridge
from fairhorizon.settings import Given, Settings, SettingsError, changed

MEMBERS: dict[str, type[Ranker[Any]]] = {
    ranker.method: ranker for ranker in (Ridge, Ease, ItemKnn, Popularity, Gru4Rec)
}


def _as_in_a_file(settings: dict[str, Any]) -> dict[str, Any]:
    """Lists for tuples, so that what is stored and read again is the same."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in settings.items()}


GivenSettings = Annotated[dict[str, Any], AfterValidator(_as_in_a_file)]


class MemberSettings(Settings):
    """Beside its own settings, those of the rankers that it is made of, by name."""

    ridge: GivenSettings = Field(default_factory=dict)
    """Settings of ridge that are given, as in ridge.l2=3000; the others are chosen on the log."""
    ease: GivenSettings = Field(default_factory=dict)
    """Settings of ease that are given, as in ease.half_life=5."""
    itemknn: GivenSettings = Field(default_factory=dict)
    """Settings of itemknn that are given, as in itemknn.neighbours=100."""
    gru4rec: GivenSettings = Field(default_factory=dict)
    """Settings of gru4rec that are given, as in gru4rec.dim=32; the others are its defaults."""

    @property
    def given(self) -> Given:
        """By ranker."""
        return {name: getattr(self, name) for name in MemberSettings.model_fields}

    @model_validator(mode="after")
    def _rankers_can_take_them(self) -> "MemberSettings":
        for name, settings in self.given.items():
            try:
                changed(MEMBERS[name].config_class(), settings)
            except SettingsError as error:
                raise ValueError(f"{name}: {error}") from None
        return self
