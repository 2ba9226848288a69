"""The language of limits: what may be shown of whom, as users write it.

    GROUP(<=|>=)SHARE[@K][;labels=first|moment|lagged:N|retrospective][;scope=all|list|prefix]
                         [;weights=none|log|w1,w2,..]

GROUP is `popular`, `new`, `gini`, COLUMN=VALUE[,VALUE...], COLUMN:each or, of a column of dates,
COLUMN:DAYSd, with quotes around names that have other characters than letters, digits, `_`, `-` and
`.`. The paper's two constraints are short for shares: `popular:rest<=RATIO` limits the ratio of the
group's showings to all others, and `popular<=parity` gives the group the share that it has of the
catalogue. This module reads and writes the text; who is in a group is up to the data
(`datasets.py`).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn, Self

from fairhorizon.errors import ConfigError
from fairhorizon.limits.groups import POPULAR_SHARE
from fairhorizon.vocabulary import Labels, Scope, Weighing

POPULAR, NEW, GINI = "popular", "new", "gini"
RESERVED = (POPULAR, NEW, GINI)
EACH, PARITY = "each", "parity"
DAYS = re.compile(r"([1-9]\d{0,5})d")  # 30d: the items whose date is one of the last 30 days
EXAMPLE = "popular<=0.4"
QUOTED_EXAMPLE = '"brand=A & B"<=0.1'
PLAIN_NAME = re.compile(r"[\w.-]+")
RATIO = re.compile(rf"\s*{POPULAR}\s*:\s*rest\s*(?=[<>])")
# COLUMN=VALUES:SHARE, as in other tools; refused with the text that says the same.
OLD_FORM = re.compile(r"(?P<column>[^=<>]+)=(?P<values>[^<>]+):(?P<share>[\d.]+)")


def alpha_prime(alpha: float) -> float:
    """The largest share of the group where Exposure(G0) / Exposure(G1) <= alpha (equation 7)."""
    if alpha < 0:
        raise ValueError(f"alpha is a ratio of exposures: it must be at least 0, not {alpha}")
    return alpha / (1 + alpha)


class LimitError(ConfigError):
    """A limit that cannot be read."""


@dataclass(frozen=True)
class GroupOf:
    """A group of items, as it is called: a reserved word, values of a column, or its last days."""

    column: str
    values: tuple[str, ...] = ()  # none: a reserved word, or each value by itself
    each: bool = False
    days: int | None = None  # up to the newest date of the column

    @property
    def reserved(self) -> bool:
        return not self.values and not self.each and self.days is None

    def __str__(self) -> str:
        if self.reserved:
            return self.column
        column = quoted(self.column) if self.column in RESERVED else _name_text(self.column)
        if self.each:
            return f"{column}:{EACH}"
        if self.days is not None:
            return f"{column}:{self.days}d"
        parts = f"{column}={','.join(map(_name_text, self.values))}"
        # "genre=Sci Fi" in one pair of quotes is easier to read than genre="Sci Fi" inside a
        # shell's quotes. It cannot be read back if the column itself has an equals sign.
        if '"' in parts and len(self.values) == 1 and "=" not in self.column:
            return quoted(f"{self.column}={self.values[0]}")
        return parts


@dataclass(frozen=True)
class Limit:
    """A largest share, or as a floor a smallest one, and how it is counted."""

    group: GroupOf
    share: float
    is_floor: bool = False
    first: int | None = None  # only the first so many places of a list count
    labels: Labels | None = None  # None: as the command has it
    lag: int = 0  # steps, of labels that lag
    scope: Scope = Scope.ALL
    weighing: Weighing = Weighing.NONE
    weights: tuple[float, ...] = ()  # given ones, by place; places beyond count 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """The limit that a text describes.

        A LimitError names the position where the text stops making sense, and what would fit.
        """
        if not isinstance(text, str):
            raise LimitError(f"{text!r} is no limit (give a text, as in {EXAMPLE!r})")
        return cls(**_LimitReader(text).limit())

    @classmethod
    def popular(cls, share: float) -> Self:
        """What `--alpha-prime SHARE` is short for."""
        return cls(GroupOf(POPULAR), share)

    @property
    def is_gini(self) -> bool:
        return self.group == GroupOf(GINI)

    @property
    def is_plain(self) -> bool:
        """A share of all showings, each of which counts 1."""
        counted = (self.first, self.scope, self.weighing)
        return not self.is_gini and counted == (None, Scope.ALL, Weighing.NONE)

    def __str__(self) -> str:
        parts = [f"{self.group}{'>=' if self.is_floor else '<='}{written(self.share)}"]
        if self.first is not None:
            parts[0] += f"@{self.first}"
        # Only what differs from the default is written, so that equal limits have equal texts.
        if self.labels is not None:
            lag = f":{self.lag}" if self.labels is Labels.LAGGED else ""
            parts.append(f"labels={self.labels}{lag}")
        if self.scope is not Scope.ALL:
            parts.append(f"scope={self.scope}")
        if self.weighing is Weighing.GIVEN:
            parts.append(f"weights={','.join(map(written, self.weights))}")
        elif self.weighing is Weighing.LOG:
            parts.append("weights=log")
        return ";".join(parts)

    def of_values(self, values: tuple[str, ...]) -> Self:
        """The same limit for some values of its column."""
        return replace(self, group=GroupOf(self.group.column, values))


def parsed_limits(texts: Iterable[str]) -> list[Limit]:
    """The limits of some texts; one text alone is one limit."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        texts = [texts]
    return [Limit.parse(text) for text in texts]


def quoted(text: str) -> str:
    """As `in_quotes` reads it."""
    return '"' + text.replace('"', '""') + '"'


def number_of(text: str) -> float | None:
    """The finite number that the text is; None if it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def written(number: float) -> str:
    """The shortest text that reads back as the same number: 0.4, and 1 for 1.0."""
    short = f"{number:.12g}"
    return short if float(short) == number else repr(number)


def _name_text(name: str) -> str:
    return name if PLAIN_NAME.fullmatch(name) else quoted(name)


class _TextCursor:
    """A place in a text; what it cannot read is an error that names the place and the remedy."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def next_is(self, text: str) -> bool:
        """Whether the text goes on like this; if so, it is read."""
        found = self.text.startswith(text, self.at)
        self.at += len(text) if found else 0
        return found

    def up_to(self, stop: str) -> str:
        """What comes before the next of these characters, without blanks around it."""
        found = re.compile(f"[^{re.escape(stop)}]*").match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        return found.group().strip()

    def in_quotes(self, example: str) -> str:
        """What comes before the closing quote, in which two quotes are one; and blanks after it."""
        begin, parts = self.at, []
        while True:
            end = self.text.find('"', self.at)
            if end < 0:
                self.at = begin - 1
                self.fail("this quote is not closed", example)
            parts.append(self.text[self.at : end])
            self.at = end + 1
            # Two quotes in a row stand for one; a single quote closes the text.
            if not self.next_is('"'):
                self.at = len(self.text) - len(self.text[self.at :].lstrip())
                return "".join(parts)
            parts.append('"')

    def fail(self, what: str, remedy: str) -> NoReturn:
        raise LimitError(f"{self.text!r}, position {self.at + 1}: {what} (give {remedy})")


class _LimitReader(_TextCursor):
    """Reads the text of a limit."""

    OPTIONS: ClassVar = {
        "labels": "first, moment, lagged:N or retrospective",
        "scope": "all, list or prefix",
        "weights": "none, log or numbers from 0 on, as in 1,0.5,0.2",
    }

    def limit(self) -> dict[str, Any]:
        self._refuse_old_form()
        ratio = RATIO.match(self.text)
        if ratio:
            self.at = ratio.end()
        group = GroupOf(POPULAR) if ratio else self._group()
        is_floor = self._sign() == ">="
        share = alpha_prime(self._ratio()) if ratio else self._share(group)
        fields: dict[str, Any] = {"group": group, "is_floor": is_floor, "share": share}
        if self.next_is("@"):
            fields["first"] = self._first()
        while self.next_is(";"):
            self._option(fields)
        if self.at < len(self.text):
            self.fail(f"{self.text[self.at :]!r} does not belong to a limit", EXAMPLE)
        self._check(fields, group)
        return fields

    def _refuse_old_form(self) -> None:
        old = OLD_FORM.fullmatch(self.text)
        if old:
            group = GroupOf(old["column"], tuple(old["values"].split(",")))
            self.at = old.start("share") - 1
            self.fail("the share comes after <= or >=", f"{group}<={old['share']}")

    def _group(self) -> GroupOf:
        begin = self.at
        column, quotes = self._name("a group", stop="=:<>")
        after = self.text[self.at : self.at + 1]
        # The shell-friendly form: COLUMN=VALUE inside one pair of quotes.
        if quotes and after in ("<", ">") and "=" in column:
            column, _, value = column.partition("=")
            if not column or not value:
                self.at = begin
                self.fail("a column and its value are needed", QUOTED_EXAMPLE)
            return GroupOf(column, (value,))
        # A column that is called like a reserved word needs quotes; without them it is a mistake
        # more often than a column.
        if after in (":", "=") and column in RESERVED and not quotes:
            self.at = begin
            self.fail(
                f"{column!r} is no column", f'{column}<=0.4, or "{column}" in quotes if it is one'
            )
        if self.next_is(":"):
            start = self.at
            word, _ = self._name(f"{EACH!r}", stop="<>=")
            if days := DAYS.fullmatch(word):
                return GroupOf(column, days=int(days[1]))
            if word != EACH:
                self.at = start
                name = _name_text(column)
                self.fail(f"{word!r} of a column", f"{name}:{EACH}, or {name}:30d of dates")
            return GroupOf(column, each=True)
        if self.next_is("="):
            values = [self._name("a value", stop="<>,")[0]]
            while self.next_is(","):
                values.append(self._name("a value", stop="<>,")[0])
            return GroupOf(column, tuple(values))
        if column not in RESERVED:
            self.at = begin
            self.fail(
                f"{column!r} is no group",
                f"{', '.join(RESERVED)}, COLUMN=VALUE, COLUMN:{EACH} or COLUMN:30d",
            )
        return GroupOf(column)

    def _name(self, what: str, stop: str) -> tuple[str, bool]:
        """A name up to one of the characters, or in quotes, which may hold any of them."""
        begin, quotes = self.at, self.next_is('"')
        name = self.in_quotes(QUOTED_EXAMPLE) if quotes else self.up_to(f"{stop};")
        if not name:
            self.at = begin
            self.fail(f"{what} is missing", EXAMPLE)
        return name, quotes

    def _sign(self) -> str:
        sign = self.text[self.at : self.at + 2]
        if sign not in ("<=", ">="):
            self.fail("<= or >= is missing", EXAMPLE)
        self.at += 2
        return sign

    def _ratio(self) -> float:
        begin = self.at
        text = self.up_to("@;")
        ratio = number_of(text)
        if ratio is None or ratio < 0:
            self.at = begin
            self.fail(
                f"{text!r} is no ratio", "a number from 0 on: showings of the group per other"
            )
        return ratio

    def _share(self, group: GroupOf) -> float:
        begin = self.at
        text = self.up_to("@;")
        if text == PARITY:
            if group != GroupOf(POPULAR):
                self.at = begin
                self.fail(f"{PARITY} is for {POPULAR}", "the share that the group has of all items")
            return POPULAR_SHARE
        share = number_of(text)
        if share is None or not 0 <= share <= 1:
            self.at = begin
            self.fail(f"{text!r} is no share", "a number from 0 to 1, not a percentage")
        return share

    def _first(self) -> int:
        begin = self.at
        text = self.up_to(";")
        if not text.isdecimal() or int(text) < 1:
            self.at = begin
            self.fail(f"{text!r} is no number of places", "a whole number from 1 on, as in @5")
        return int(text)

    def _option(self, fields: dict[str, Any]) -> None:
        begin = self.at
        key, _, value = self.up_to(";").partition("=")
        if key not in self.OPTIONS or key in fields:
            self.at = begin
            if key in self.OPTIONS:
                self.fail(f"a second {key}", "one of them")
            self.fail(f"there is no {key!r}", f"{', '.join(self.OPTIONS)}")
        read = {"labels": _labels, "scope": _scope, "weights": _weights}[key](value)
        if read is None:
            self.at = begin + len(key) + 1
            self.fail(f"{value!r} does not say which {key}", self.OPTIONS[key])
        fields |= read

    def _check(self, fields: dict[str, Any], group: GroupOf) -> None:
        """Refuses parts that are right by themselves and make no sense together."""
        self.at = 0
        if group == GroupOf(GINI):
            if fields["is_floor"]:
                self.fail("a Gini index has no smallest value", "gini<=0.8")
            # More than group, sign and share: some option was given.
            if len(fields) > 3:
                self.fail("the Gini index is that of all showings, each counted once", "gini<=0.8")
        by_list = fields.get("scope", Scope.ALL) is not Scope.ALL
        if by_list and fields.get("weighing", Weighing.NONE) is not Weighing.NONE:
            self.fail(
                "weights are for scope=all: a list or its beginnings are counted in places",
                "either weights or a scope",
            )

        # Weights that are 0 in all counted places would make a limit that nothing can break.
        first = fields.get("first")
        if fields.get("weights") and not any(fields["weights"][:first]):
            self.fail(
                f"these weights leave none of the first {first} places",
                "a weight above 0 to one of them",
            )


# Readers of option values: fields of `Limit`, or None where the value is not allowed.


def _labels(value: str) -> dict[str, Any] | None:
    word, _, lag = value.partition(":")
    lags = word == Labels.LAGGED
    counted = lag.isdecimal() and int(lag) > 0
    if word not in list(Labels) or (not counted if lags else lag):
        return None
    return {"labels": Labels(word), "lag": int(lag or 0)}


def _scope(value: str) -> dict[str, Any] | None:
    return {"scope": Scope(value)} if value in list(Scope) else None


def _weights(value: str) -> dict[str, Any] | None:
    if value in (Weighing.NONE, Weighing.LOG):
        return {"weighing": Weighing(value), "weights": ()}
    numbers = [number_of(part) for part in value.split(",")]
    weights = tuple(number for number in numbers if number is not None and number >= 0)
    if len(weights) < len(numbers) or not any(weights):
        return None
    return {"weighing": Weighing.GIVEN, "weights": weights}
