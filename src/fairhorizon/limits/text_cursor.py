"""Reads a text from left to right and knows where it is."""

import re
from typing import NoReturn

from fairhorizon.errors import ConfigError


class TextCursor:
    """A place in a text; what it cannot read is an error that names the place and the remedy."""

    error: type[ConfigError] = ConfigError

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
            if not self.next_is('"'):
                self.at = len(self.text) - len(self.text[self.at :].lstrip())
                return "".join(parts)
            parts.append('"')

    def fail(self, what: str, remedy: str) -> NoReturn:
        raise self.error(f"{self.text!r}, position {self.at + 1}: {what} (give {remedy})")


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
    """As short as it can be read back: 0.4, and 1 for 1.0."""
    short = f"{number:.12g}"
    return short if float(short) == number else repr(number)
