"""Methods by name: `ease`, `ease:recent`, `ease+quota@0.4`, `fcpo@0.65`, `fcpo:paper@0.4`.

What other programs have made has a name of the user's: `scores:mine+quota@0.4`, `lists:mine`.
Installed packages bring methods by entry points of the group `fairhorizon.methods`.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import ValidationError

from fairhorizon.errors import ConfigError, ModelError, of_type, whole_number
from fairhorizon.rankers import GIVEN_SCORES, RANKERS, ranker_class
from fairhorizon.registry import LazyClasses
from fairhorizon.rerank import RERANKERS
from fairhorizon.settings import Given, SettingsError, changed, faults
from fairhorizon.vocabulary import MethodName

# What is imported in functions below needs torch; names are checked without it.
if TYPE_CHECKING:
    from fairhorizon.recommenders.base import Capabilities, Recommender
    from fairhorizon.rerank.reranker import Reranker

# Methods that make lists themselves, by name: a new one is a file or a folder, and a line here.
RECOMMENDERS: "LazyClasses[Recommender]" = LazyClasses(
    {
        "fcpo": "fairhorizon.fcpo.model:Fcpo",
        "lird": "fairhorizon.lird:Lird",
    }
)
# Lists that another program has made, read from a file: `lists:NAME`.
GIVEN_LISTS = "lists"
# What is read from a file; which one is in the settings, under the whole name (`scores:mine`).
GIVEN = (GIVEN_SCORES, GIVEN_LISTS)


ENTRY_POINTS = "fairhorizon.methods"


def add_installed_methods() -> None:
    """Methods of installed packages, rankers and recommenders, under the names they are given.

    One that cannot be had is warned about and left out, so that all others still work.
    """
    for point in entry_points(group=ENTRY_POINTS):
        from fairhorizon.rankers.ranker import Ranker
        from fairhorizon.recommenders.base import Recommender

        try:
            kind = point.load()
        except Exception as error:  # whatever somebody else's module raises
            warnings.warn(
                f"the method {point.name} of {point.value} fails: {error!r}", stacklevel=2
            )
            continue
        is_kind = isinstance(kind, type) and issubclass(kind, Ranker | Recommender)
        if not is_kind or point.name in (*RANKERS, *RECOMMENDERS):
            fault = "is there already" if is_kind else "is neither a Ranker nor a Recommender"
            warnings.warn(f"the method {point.name} of {point.value} {fault}", stacklevel=2)
        elif issubclass(kind, Ranker):
            RANKERS[point.name] = kind
        else:
            RECOMMENDERS[point.name] = kind


add_installed_methods()


class MethodError(ConfigError):
    """A method that does not exist."""


@dataclass(frozen=True)
class Method:
    """A ranker or a recommender, a re-ranker where there is one, and the level that is set."""

    base: str
    reranker: str | None = None
    level: float | None = None
    preset: str | None = None  # of a recommender, or the variant of a ranker; None: the default

    @classmethod
    def parse(cls, text: str) -> Self:
        """The method of a name, as in `ease:recent+quota@0.4`; a MethodError says what is wrong."""
        if not isinstance(text, str):
            raise MethodError(f"{text!r} is no method (give its name, as in 'fcpo')")
        written = MethodName.split(text)
        base, preset = written.base, written.preset
        reranker, level = written.reranker, written.level
        if base not in (*RANKERS, *RECOMMENDERS, *GIVEN):
            known = ", ".join((*RANKERS, *RECOMMENDERS))
            raise MethodError(f"there is no method {base!r} (there are {known})")
        if base in GIVEN:
            if not preset:
                raise MethodError(f"{text}: which {base}? ({base}:NAME, of --{base} NAME=FILE)")
        elif preset is not None and preset not in presets_of(base):
            bases = (*RANKERS, *RECOMMENDERS)
            known = ", ".join(f"{base}:{name}" for base in bases for name in presets_of(base))
            raise MethodError(f"{text}: there is no such preset (there are {known})")
        if reranker is not None and reranker not in RERANKERS:
            known = ", ".join(RERANKERS)
            raise MethodError(f"{text}: there is no re-ranker {reranker!r} (there are {known})")
        if reranker is not None and not is_ranker(base):
            raise MethodError(f"{text}: only a ranker can be re-ranked ({', '.join(RANKERS)})")
        method = cls(base, reranker, None, preset)
        if level is None:
            return method
        from fairhorizon.recommenders.base import Levels

        # Asked of the method without its level, as some methods have none.
        if method.capabilities.levels is Levels.NONE:
            raise MethodError(f"{text}: {base} has no level to set (leave out @{level})")
        try:
            return replace(method, level=float(level))
        except ValueError:
            raise MethodError(f"{text}: {level!r} is no number (as in {method.name}@0.4)") from None

    def __str__(self) -> str:
        return self.name if self.level is None else f"{self.name}@{self.level:g}"

    @property
    def name(self) -> str:
        """Without the level."""
        return self.trained_name + (f"+{self.reranker}" if self.reranker else "")

    @property
    def trained_name(self) -> str:
        """Without re-ranker and level: the ranker or the preset."""
        return self.base + (f":{self.preset}" if self.preset else "")

    @property
    def settings_name(self) -> str:
        """Under which its settings are given: presets share them, variants of rankers do not."""
        return self.base if self.base in RECOMMENDERS else self.trained_name

    @property
    def file_name(self) -> str:
        """For its files: a colon is not allowed in all file systems."""
        return str(self).replace(":", "-")

    @cached_property
    def capabilities(self) -> "Capabilities":
        """What it can do with the settings of its preset."""
        return build(replace(self, level=None), {}, seed=0).capabilities

    def limited_to(self, alpha_prime: float) -> "Method":
        """With a largest share of showings for the group, where the level is one."""
        if not self.capabilities.level_is_share:
            remedy = f" (try {self.trained_name}+quota)" if is_ranker(self.base) else ""
            raise MethodError(f"{self} has no limit to set to {alpha_prime:g}{remedy}")
        if self.level not in (None, alpha_prime):
            raise MethodError(f"{self} and alpha' {alpha_prime:g} are two limits (give one)")
        return replace(self, level=alpha_prime)

    @property
    def trained(self) -> "Method":
        """The part that is trained.

        Re-rankers are not trained, and one model may serve all levels. So `ease+quota@0.4` and
        `ease+quota@0.6` share the training of `ease`.
        """
        from fairhorizon.recommenders.base import Levels

        if self.capabilities.levels is not Levels.SERVED:
            return self
        default = next(iter(presets_of(self.base)), None) if self.base in RECOMMENDERS else None
        return Method(self.base, preset=self.preset or default)


def is_ranker(base: str) -> bool:
    """Whether a method scores items, so that it can be re-ranked."""
    return base in RANKERS or base == GIVEN_SCORES


def has_settings(name: str) -> bool:
    """Whether there is a method, a variant or a re-ranker of this name, as settings are given."""
    known = name in RANKERS or name in RECOMMENDERS or name in RERANKERS
    return known or name.partition(":")[0] in GIVEN


def presets_of(base: str) -> tuple[str, ...]:
    """The presets that a name can choose from, the default first; or the variants of a ranker
    beside the published method."""
    if base in RECOMMENDERS:
        known = tuple(RECOMMENDERS[base].presets)
        return known if len(known) > 1 else ()
    return tuple(name.removeprefix(f"{base}:") for name in RANKERS if name.startswith(f"{base}:"))


def build(method: Method, given: Given, seed: int, *, preset: str | None = None) -> "Recommender":
    """The method before its fit, with the given settings in place of the defaults.

    preset: the one to start from where the method names none.
    """
    from fairhorizon.data.given_file import GivenFile
    from fairhorizon.recommenders.given_lists import GivenLists
    from fairhorizon.recommenders.ranked.model import Ranked

    seed = whole_number(seed, "seed", "give one, as in 0")
    of_type(given, Mapping, "settings", "give them by name, as in {'l2': 500}")
    if method.base == GIVEN_LISTS:
        return GivenLists(changed(GivenFile(), given), seed=seed)
    if method.base not in RECOMMENDERS:
        kind = ranker_class(method.trained_name)
        own = {key: value for key, value in given.items() if key != method.reranker}
        ranker = kind(changed(kind.config_class(), own), seed=seed)
        return Ranked(ranker, build_reranker(method, given))
    recommender = RECOMMENDERS[method.base]
    default = next(iter(recommender.presets))
    name = method.preset or (preset if preset in recommender.presets else default) or default
    # The settings that define a preset cannot be changed under its name.
    given = {
        key: value for key, value in given.items() if key not in recommender.fixed.get(name, ())
    }
    # The level after the given settings: `fcpo@0.4` wins over a level in the configuration file.
    level = {} if method.level is None else {recommender.level_setting: method.level}
    return recommender.configured(changed(recommender.presets[name], {**given, **level}), seed)


def build_reranker(method: Method, given: Given) -> "Reranker | None":
    """The re-ranker of the method, or None."""
    if method.reranker is None:
        return None
    own = given.get(method.reranker, {})
    if not isinstance(own, Mapping):
        part = method.reranker
        raise SettingsError(f"{part}={own} (say which of its settings, as in {part}.key=value)")
    reranker = changed(RERANKERS[method.reranker](), own)
    if method.level is None:
        return reranker
    try:
        return reranker.at_level(method.level)
    except ValidationError as error:
        raise SettingsError(faults(error, reranker)) from None


def validates(method: Method) -> bool:
    """Whether training looks at validation items, and so has to know the protocol."""
    return "protocol" in type(build(method.trained, {}, seed=0).settings).model_fields


def rankers_of(model: "Recommender") -> frozenset[str]:
    """The names of the rankers that a method is made of; empty where it is made of none."""
    from fairhorizon.fcpo.config import FcpoConfig
    from fairhorizon.rankers.ensemble import StackConfig

    match model.settings:
        case StackConfig() as stack:
            return frozenset(stack.rankers)
        case FcpoConfig() as fcpo:
            return frozenset(fcpo.warm_start)
    return frozenset() if model.ranker is None else frozenset({model.ranker.method})


def longest_first(method: Method) -> tuple[int, str]:
    """A sort key that puts slow methods first, so that none of them is started last and alone."""
    order = [*RECOMMENDERS, *reversed([*RANKERS]), *GIVEN]
    return order.index(method.base), str(method)


def load_method(path: Path) -> "Recommender":
    """The model of a file, whatever method it is of."""
    from fairhorizon.recommenders.given_lists import GivenLists
    from fairhorizon.recommenders.ranked.model import Ranked
    from fairhorizon.storage import model_kind

    recommenders: list[type[Recommender]] = [Ranked, GivenLists, *RECOMMENDERS.values()]
    kinds = {recommender.kind: recommender for recommender in recommenders}
    kind = model_kind(path)
    if kind not in kinds:
        raise ModelError(f"{path}: holds a '{kind}' model, which this version does not know")
    return kinds[kind].load(path)
