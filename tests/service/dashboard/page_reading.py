"""Reads pages as a browser does: elements, attributes and text, with everything unescaped."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "br", "img"}


@dataclass
class Element:
    """A tag with its attributes and everything inside."""

    tag: str
    attributes: dict[str, str | None]
    inside: "list[Element | str]" = field(default_factory=list)

    def every(self, tag: str, **attributes: str) -> "list[Element]":
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        found = []
        for one in self.inside:
            if isinstance(one, Element):
                if one.tag == tag and wanted.items() <= one.attributes.items():
                    found.append(one)
                found += one.every(tag, **attributes)
        return found

    def one(self, tag: str, **attributes: str) -> "Element":
        (found,) = self.every(tag, **attributes)
        return found

    @property
    def text(self) -> str:
        parts = [one if isinstance(one, str) else one.text for one in self.inside]
        return " ".join(" ".join(parts).split())

    def rows(self) -> list[list[str]]:
        """The body of a table."""
        body = self if self.tag == "tbody" else self.one("tbody")
        return [[cell.text for cell in row.every("td")] for row in body.every("tr")]

    def facts(self) -> dict[str, str]:
        """A list of names with values."""
        names, values = self.every("dt"), self.every("dd")
        return {a.text: b.text for a, b in zip(names, values, strict=True)}

    def fields(self) -> dict[str, str]:
        """What a form would send."""
        return {
            str(one.attributes["name"]): str(one.attributes.get("value") or "")
            for one in self.every("input")
        }


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Element("document", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, dict(attrs))
        self.open[-1].inside.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].inside.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open[-1].tag == tag, f"</{tag}> ends <{self.open[-1].tag}>"
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)


def read(html: str) -> Element:
    """The document; tags that do not close each other are an error."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    (document,) = reader.open
    return document
