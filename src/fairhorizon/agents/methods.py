"""Methods by name: `ease`, `ease+quota`, `ease+quota@0.4`, `fcpo@0.65`, `fcpo:paper@0.4`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from fairhorizon.agents.fcpo.config import PRESETS
from fairhorizon.agents.fcpo.model import Fcpo
from fairhorizon.agents.lird.config import LirdConfig
from fairhorizon.agents.lird.model import Lird
from fairhorizon.agents.ranked.model import KIND as RANKED
from fairhorizon.agents.ranked.model import Ranked
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.rankers import RANKERS
from fairhorizon.rerank import RERANKERS
from fairhorizon.rerank.reranker import Reranker
from fairhorizon.settings import Settings
from fairhorizon.storage import model_kind

Model = Fcpo | Lird | Ranked
S = TypeVar("S", bound=Settings)
Given = Mapping[str, Any]  # settings by name, those of a part nested under the part's name

DEFAULT_PRESET = "strong"  # of FCPO
SHARE_DIALS = ("quota", "foe")  # re-rankers whose level is a share of sensitive items
AGENTS: dict[str, type[Fcpo | Lird]] = {Fcpo.method: Fcpo, Lird.method: Lird}


class MethodError(ConfigError):
    """A method that there is not."""


class SettingsError(ConfigError):
    """A setting that a method does not have or cannot take."""


@dataclass(frozen=True)
class Method:
    """A ranker or an agent, a re-ranker where there is one, and where its fairness dial stands."""

    base: str
    reranker: str | None = None
    level: float | None = None
    preset: str | None = None  # of FCPO; None: the default

    @classmethod
    def parse(cls, text: str) -> Self:
        name, at, level = text.strip().partition("@")
        base, plus, reranker = name.partition("+")
        base, colon, preset = base.partition(":")
        if base not in (*RANKERS, *AGENTS):
            known = ", ".join((*RANKERS, *AGENTS))
            raise MethodError(f"there is no method {base!r} (there are {known})")
        if colon and (base != Fcpo.method or preset not in PRESETS):
            known = ", ".join(f"{Fcpo.method}:{name}" for name in PRESETS)
            raise MethodError(f"{text}: there is no such preset (there are {known})")
        if plus and reranker not in RERANKERS:
            known = ", ".join(RERANKERS)
            raise MethodError(f"{text}: there is no re-ranker {reranker!r} (there are {known})")
        if plus and base not in RANKERS:
            raise MethodError(f"{text}: only a ranker can be re-ranked ({', '.join(RANKERS)})")
        if at and not (plus or base == Fcpo.method):
            raise MethodError(f"{text}: {base} has no fairness dial (leave out @{level})")
        try:
            return cls(base, reranker or None, float(level) if at else None, preset or None)
        except ValueError:
            raise MethodError(f"{text}: {level!r} is no number (as in {name}@0.4)") from None

    def __str__(self) -> str:
        return self.name if self.level is None else f"{self.name}@{self.level:g}"

    def limited_to(self, alpha_prime: float) -> "Method":
        """The dial at a largest share of sensitive items, for methods whose dial is one."""
        if self.base != Fcpo.method and self.reranker not in SHARE_DIALS:
            remedy = f" (try {self.base}+quota)" if self.base in RANKERS else ""
            raise MethodError(f"{self} has no limit to set to {alpha_prime:g}{remedy}")
        if self.level not in (None, alpha_prime):
            raise MethodError(f"{self} and alpha' {alpha_prime:g} are two limits (give one)")
        return replace(self, level=alpha_prime)

    @property
    def name(self) -> str:
        """Without the level of its dial."""
        preset = f":{self.preset}" if self.preset else ""
        return self.base + preset + (f"+{self.reranker}" if self.reranker else "")

    @property
    def file_name(self) -> str:
        """For its files: a colon is not allowed in all file systems."""
        return str(self).replace(":", "-")

    @property
    def has_dial(self) -> bool:
        return self.reranker is not None or self.base == Fcpo.method

    @property
    def serves_any_level(self) -> bool:
        """Whether it is an FCPO whose limit is chosen when it serves, not when it is trained."""
        chosen = self.preset or DEFAULT_PRESET
        return self.base == Fcpo.method and PRESETS[chosen].serves_any_level

    @property
    def trained(self) -> "Method":
        """The part that is trained: a re-ranker is not, nor a level that any model can serve."""
        if self.serves_any_level:
            return Method(self.base, preset=self.preset or DEFAULT_PRESET)
        return Method(self.base) if self.reranker else self


def build(method: Method, given: Given, seed: int, *, preset: str = DEFAULT_PRESET) -> Model:
    """The method before its fit, with the given settings in place of the defaults."""
    if method.base == Fcpo.method:
        level = {} if method.level is None else {"alpha_prime": method.level}
        return Fcpo(configured(PRESETS[method.preset or preset], {**given, **level}), seed=seed)
    if method.base == Lird.method:
        return Lird(configured(LirdConfig(), given), seed=seed)
    ranker_class = RANKERS[method.base]
    own = {key: value for key, value in given.items() if key != method.reranker}
    ranker = ranker_class(configured(ranker_class.config_class(), own), seed=seed)
    return Ranked(ranker, build_reranker(method, given))


def build_reranker(method: Method, given: Given) -> Reranker | None:
    """The re-ranker of the method, or None."""
    if method.reranker is None:
        return None
    own = given.get(method.reranker, {})
    if not isinstance(own, Mapping):
        part = method.reranker
        raise SettingsError(f"{part}={own} (say which of its settings, as in {part}.key=value)")
    reranker = configured(RERANKERS[method.reranker](), own)
    if method.level is None:
        return reranker
    try:
        return reranker.at_level(method.level)
    except ValidationError as error:
        raise SettingsError(_faults(error, reranker)) from None


def configured(base: S, given: Given) -> S:
    """The base settings with the given ones in their place."""
    settings = base.model_dump()
    for key, value in given.items():
        inner = isinstance(value, Mapping) and isinstance(settings.get(key), dict)
        settings[key] = settings[key] | dict(value) if inner else value
    try:
        return type(base).model_validate(settings)
    except ValidationError as error:
        raise SettingsError(_faults(error, base)) from None


def _faults(error: ValidationError, base: Settings) -> str:
    """Which settings are wrong, in one line; of an unknown one, which there are."""
    faults = []
    for fault in error.errors():
        if not fault["loc"]:  # settings that do not go together
            faults.append(fault["msg"].removeprefix("Value error, "))
            continue
        *path, last = map(str, fault["loc"])
        name = ".".join([*path, last])
        if fault["type"] == "extra_forbidden":
            known = getattr(base, path[0]) if path else base
            faults.append(f"there is no {name} (but {', '.join(known.model_dump()) or 'none'})")
        else:
            faults.append(f"{name}={fault['input']}: {fault['msg']}")
    return "; ".join(faults)


def validates(method: Method) -> bool:
    """Whether training looks at validation items, and so has to know the protocol."""
    return method.base in AGENTS or "protocol" in RANKERS[method.base].config_class.model_fields


def settings_of(model: Model) -> dict[str, Any]:
    """All settings, as they can be given again: those of a re-ranker under its name."""
    if not isinstance(model, Ranked):
        return model.config.model_dump(mode="json")
    settings: dict[str, Any] = model.ranker.config.model_dump(mode="json")
    if model.reranker is not None:
        settings[model.reranker.method] = model.reranker.model_dump(mode="json")
    return settings


def load_method(path: Path) -> Model:
    """The model of a file, whatever method it is of."""
    kind = model_kind(path)
    if kind == RANKED:
        return Ranked.load(path)
    if kind not in AGENTS:
        raise ModelError(f"{path}: holds a '{kind}' model, which this version does not know")
    return AGENTS[kind].load(path)
