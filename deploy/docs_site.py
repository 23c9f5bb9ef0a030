"""What `make docs` does beside MkDocs: README becomes the first page, and links out of docs/ lead into the site.

A file of the repository that a page links to (a source, a mapping, a data card) becomes a page below `source/`; a
folder, a page with the names of its files. So the site is whole without a server or an address of the repository.
"""

import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")
MARKS = re.compile(r"^<!-- (?:end )?table.*-->$", re.MULTILINE)  # between them benchmarks/tables.py writes
HIDDEN = "---\nsearch: {exclude: true}\n---\n\n"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds to the section that is called as a folder of docs/ (Recipes, ...) what it does not name of that folder."""
    for section in config.nav or []:
        for title, entries in section.items():
            pages = (f"{title.lower()}/{path.name}" for path in sorted((ROOT / "docs" / title.lower()).glob("*.md")))
            entries += [page for page in pages if page not in str(entries)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds README, and a page for each file or folder that is linked to and is none of the site's."""
    texts = {page.src_uri: Path(str(page.abs_src_path)).read_text(encoding="utf-8")
             for page in files.documentation_pages()}
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text(encoding="utf-8")))
    texts["index.md"] = files.src_uris["index.md"].content_string
    linked = {_target(link, uri) for uri, text in texts.items() for link in LINK.findall(text)}
    for path in sorted(path for path in linked if _page(path) == f"source/{path}.md" and (ROOT / path).exists()):
        files.append(File.generated(config, _page(path), content=_shown(path), inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links of the repository into links of the site."""
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown

    def within_site(link: re.Match[str]) -> str:
        target = _target(link[1], uri)
        if not (ROOT / target).exists():  # MkDocs says so, with the link as it was written
            return link[1]
        return posixpath.relpath(_page(target), posixpath.dirname(uri) or ".")

    return LINK.sub(within_site, MARKS.sub("", markdown))


def _target(link: str, uri: str) -> str:
    """What a link of a page leads to, from the repository's root on."""
    beside = "" if uri == "index.md" else posixpath.dirname(f"docs/{uri}")
    return posixpath.normpath(posixpath.join(beside, link))


def _page(path: str) -> str:
    """Where a file of the repository stands in the site."""
    if path.startswith("docs/") and not (ROOT / path).is_dir() and not path.startswith("docs/schemas/"):
        return path.removeprefix("docs/")
    return f"source/{path}.md"


def _shown(path: str) -> str:
    there = ROOT / path
    if there.is_dir():
        names = sorted(each.name + os.sep * each.is_dir() for each in there.iterdir() if each.name != "__pycache__")
        return f"{HIDDEN}# {path}/\n\n" + "\n".join(f"- `{name}`" for name in names)
    text = there.read_text(encoding="utf-8")
    fence, language = "~" * 8, there.suffix.removeprefix(".").replace("py", "python")
    return f"{HIDDEN}# {path}\n\n{fence} {language}\n{text}\n{fence}\n"
