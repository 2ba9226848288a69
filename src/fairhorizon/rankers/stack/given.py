"""Settings of single rankers that are given, and so are not chosen on the log."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from fairhorizon.data.splits import Split
from fairhorizon.rankers.als import Als
from fairhorizon.rankers.ease import MOST_ITEMS, Ease, RecentEase
from fairhorizon.rankers.fitting import draft_of
from fairhorizon.rankers.gru4rec import Gru4Rec
from fairhorizon.rankers.itemknn import ItemKnn, RecentItemKnn
from fairhorizon.rankers.popularity import Popularity
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.ridge import Ridge
from fairhorizon.settings import Given, Settings, SettingsError, changed
from fairhorizon.vocabulary import Protocol

MEMBERS: dict[str, type[Ranker[Any]]] = {
    ranker.method: ranker
    for ranker in (Ridge, Ease, RecentEase, ItemKnn, RecentItemKnn, Popularity, Gru4Rec, Als)
}
FEW_EPOCHS: Given = {"max_epochs": 8}  # of ALS where it is one of many, in a large catalogue


def _as_in_a_file(settings: dict[str, Any]) -> dict[str, Any]:
    """Lists for tuples, so that what is stored and read again is the same."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in settings.items()}


GivenSettings = Annotated[dict[str, Any], AfterValidator(_as_in_a_file)]


class MemberSettings(Settings):
    """Beside its own settings, those of the rankers that it is made of, by name."""

    ridge: GivenSettings = Field(default_factory=dict)
    """Settings of ridge that are given, as in ridge.l2=3000; the others are chosen on the log."""
    ease: GivenSettings = Field(default_factory=dict)
    """Settings of ease or ease:recent that are given, as in ease.half_life=5."""
    itemknn: GivenSettings = Field(default_factory=dict)
    """Settings of itemknn or itemknn:recent that are given, as in itemknn.neighbours=100."""
    gru4rec: GivenSettings = Field(default_factory=dict)
    """Settings of gru4rec that are given, as in gru4rec.dim=32; the others are its defaults."""
    als: GivenSettings = Field(default_factory=dict)
    """Settings of als that are given, as in als.dim=128; the others are its defaults."""

    def given_to(self, name: str) -> Given:
        """The given settings of a ranker, `ease` or `ease:recent`; one without any has none."""
        given: Given = getattr(self, base_of(name), {}) if base_of(name) in GIVEN else {}
        return given

    @model_validator(mode="after")
    def _rankers_can_take_them(self) -> "MemberSettings":
        for base in GIVEN:
            # of a variant, where there is one: it has all settings of the published method
            kind = MEMBERS.get(f"{base}:recent", MEMBERS[base])
            try:
                changed(kind.config_class(), getattr(self, base))
            except SettingsError as error:
                raise ValueError(f"{base}: {error}") from None
        return self

    def drafts(
        self, kinds: Mapping[str, type[Ranker[Any]]], names: Sequence[str], split: Split, seed: int
    ) -> list[Ranker[Any]]:
        """The rankers of these names, not fitted yet, that suit the size of a catalogue."""
        protocol = getattr(self, "protocol", Protocol.STANDARD)
        drafts = []
        for name in suitable(names, split):
            given = self.given_to(name)
            if name not in names:
                given = {**FEW_EPOCHS, **given}
            drafts.append(draft_of(kinds[name], given, protocol, seed))
        return drafts


GIVEN = tuple(MemberSettings.model_fields)


def base_of(name: str) -> str:
    """The method that a name is a variant of: `ease` of `ease:recent`."""
    return name.partition(":")[0]


def suitable(names: Sequence[str], split: Split) -> tuple[str, ...]:
    """These rankers, and ALS where a catalogue is so large that EASE knows but a part of it.

    Which of them are any good there is for their weights to say.
    """
    with_ease = any(base_of(name) == "ease" for name in names)
    partial = split.train.n_items > MOST_ITEMS and with_ease and "als" not in names
    return (*names, "als") if partial else tuple(names)
