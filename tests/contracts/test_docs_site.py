"""The site of `make docs`: built strictly, whole, and without anything from the network."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.e2e.tiny import ROOT

REFERENCE = re.compile(r'(?:href|src)="([^"#?]+)(?:\?[^"#]*)?(?:#[^"]*)?"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Strict: a page in no section, a link or an anchor that leads nowhere is an error."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


def test_readme_is_its_first_page_and_every_page_of_docs_is_in_it(site: Path) -> None:
    first = (site / "index.html").read_text()
    assert "images/report.png" in first and 'href="tutorial.html"' in first
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not (site / page).is_file()} == set()


def test_every_reference_leads_to_a_file_of_the_site(site: Path) -> None:
    lost = set()
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # its references begin at the site's root
            continue
        for reference in REFERENCE.findall(page.read_text()):
            if not re.match(r"[a-z]+:|//", reference) and not (page.parent / unquote(reference)).exists():
                lost.add((page.relative_to(site).as_posix(), reference))
    assert lost == set()


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r'<(?:script|link rel="stylesheet"|img)[^>]*(?:src|href)="(?:https?:)?//')
    assert [page.name for page in site.rglob("*.html") if fetched.search(page.read_text())] == []


def test_a_source_that_a_page_links_to_is_a_page(site: Path) -> None:
    shown = re.sub(r"<[^>]+>", "", (site / "source/serving/actuators/actuator.py.html").read_text())
    assert "class Actuator" in shown
