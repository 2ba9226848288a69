"""Hook of the site: links to files outside docs/ lead to pages that are made from these files.

Pages link to source and tests as they do in the repository (`../src/fairhorizon/ranking.py`). Each
file that is linked to gets a page of its own, with its lines as they are, so that no link leaves
the site. A link to a file that is not there stays as it is, and the strict build refuses it.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[#)])")
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json"}


def repository_path(target: str, folder: str) -> str:
    """Where in the repository a link of a document in a folder leads, as in docs/limits.md."""
    return posixpath.normpath(posixpath.join(folder, target))


def page_of(path: str) -> str | None:
    """The page for a file of the repository, None where it has none."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in PAGES:
        return PAGES[path]
    inside = not path.startswith("..") and (ROOT / path).is_file()
    return f"source/{path}.md" if inside else None


def with_page_links(text: str, page: str, folder: str) -> str:
    """The text of a page, written in a folder of the repository, with links between pages."""

    def replaced(found: re.Match[str]) -> str:
        target = page_of(repository_path(found[1], folder))
        return found[1] if target is None else posixpath.relpath(target, posixpath.dirname(page))

    return LINK.sub(replaced, text)


def linked_sources(text: str, folder: str) -> set[str]:
    """Files outside docs/ that a document in a folder links to."""
    paths = {repository_path(target, folder) for target in LINK.findall(text)}
    return {path for path in paths if (page_of(path) or "").startswith("source/")}


def source_page(path: str) -> str:
    """A page with the lines of a file; the search does not find it."""
    content = (ROOT / path).read_text(encoding="utf-8")
    language = LANGUAGES.get(Path(path).suffix, "text")
    head = f"---\ntitle: {path}\nsearch:\n  exclude: true\n---\n# `{path}`\n"
    return f"{head}\n``````{language}\n{content}\n``````\n"


def folder_of(page: str) -> str:
    """The folder in the repository of what a page was written from."""
    return "." if page in PAGES.values() else posixpath.join("docs", posixpath.dirname(page))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    made = {page: (ROOT / path).read_text(encoding="utf-8") for path, page in PAGES.items()}
    written = {file.src_uri: file.content_string for file in files.documentation_pages()}
    texts = (written | made).items()
    linked = {path for page, text in texts for path in linked_sources(text, folder_of(page))}
    made |= {f"source/{path}.md": source_page(path) for path in linked}
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown
    return with_page_links(markdown, uri, folder_of(uri))
