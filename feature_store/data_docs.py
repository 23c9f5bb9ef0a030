"""The Data Docs of the data gate: HTML pages that open from a folder, without a network.

Flow: expectations.py calls it after the last workload; the folder is kept as an artifact.
Great Expectations' pages load styles and scripts from public hosts and a logo with a time stamp from its own:
in a closed network they are bare, in an open one they tell when they are looked at. So the pages are written
by it, then the remote references are taken out and a small stylesheet is put in, and the index, which it
builds by script, is written here.
"""

import html
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SITE = "data_docs"
_REMOTE = re.compile(r"<script\b.*?</script>|<(?:link|img)\b[^>]*\bhttps?://[^>]*>",
                     re.DOTALL | re.IGNORECASE)

# What the pages use of Bootstrap 4 and Font Awesome, in a few lines
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; background: #fff; margin: 0; }
.container-fluid { padding: 0 1rem 1rem; } nav.navbar { padding: 0 1rem; border-bottom: 1px solid #ddd; }
.breadcrumb { list-style: none; display: flex; padding: 0; margin: 0; }
.breadcrumb-item + .breadcrumb-item::before { content: "/"; padding: 0 .5rem; color: #888; }
nav.navbar { height: auto !important; } .navbar-brand { display: none; }
.row > [class*="col-md-2"] { float: left; width: 15rem; } .row > [class*="col-md-10"] { margin-left: 16rem; }
.nav { list-style: none; padding: 0; margin: 0; max-height: none !important; }
.nav-link { display: block; padding: .1rem 0; }
.lead, .card-header { display: none; } .sticky { top: 0; }
.btn-group-toggle, .card:has(.btn-group-toggle) { display: none; }
#navigation { max-height: none !important; border: 0; padding: 0; }
.ge-section { padding: 0; margin: 0 0 .5rem; clear: none; }
.alert { background: #eef1f4; padding: .4rem .7rem; }
h4, h5, h6 { margin: .4rem 0; } h5 { font-size: 1rem; } .h6 { font-weight: 600; }
table { border-collapse: collapse; margin: .3rem 0 .8rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .7rem; border-bottom: 1px solid #e3e3e3; }
th:empty, thead[hidden] { display: none; } .show-scrollbars { overflow: visible; }
a { color: #0b5cad; text-decoration: none; } a:hover { text-decoration: underline; }
a[data-toggle="collapse"] { display: none; }
td > p { margin: 0 0 .4rem; }
.text-success { color: #1a7f37; } .text-danger { color: #c62828; } .text-warning { color: #b26a00; }
i { font-style: normal; font-weight: 700; } .fa-times::before { content: "\\2717"; }
.fa-check-circle::before { content: "\\2713"; }
.fa-exclamation-triangle::before { content: "!"; }
"""


@dataclass(frozen=True)
class Page:
    """One workload's page: the name of its suite, and what the index says about it."""

    name: str
    workload: str
    rows: int
    rules: int
    passed: bool
    messages: tuple[str, ...]


def write_data_docs(context: Any, folder: Path, pages: Sequence[Page]) -> None:
    """Writes the site of a Great Expectations context to `folder`; its index.html links the pages.

    Args:
        context: the ephemeral context that holds suites and validation results.
        folder: made if it does not exist.
        pages: one for each suite in the context.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stale in ("expectations", "validations", "static"):
        shutil.rmtree(folder / stale, ignore_errors=True)
    context.add_data_docs_site(SITE, {
        "class_name": "SiteBuilder",
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        "store_backend": {"class_name": "TupleFilesystemStoreBackend",
                          "base_directory": str(folder.resolve())},
        "show_how_to_buttons": False,
    })
    context.build_data_docs(site_names=[SITE])
    shutil.rmtree(folder / "static", ignore_errors=True)  # pictures for the references that go now
    for path in folder.rglob("*.html"):
        path.write_text(_self_contained(path.read_text(encoding="utf-8")), encoding="utf-8")
    (folder / "index.html").write_text(_index(folder, pages), encoding="utf-8")


def _self_contained(page: str) -> str:
    """The page without scripts and remote references, with STYLE."""
    page = re.sub(r"<footer\b.*?</footer>", "", _REMOTE.sub("", page), flags=re.DOTALL)
    page = re.sub(r"<link\b[^>]*favicon[^>]*>|background: url\('https?://[^;]*;", "", page)
    return page.replace("</head>", f"<style>{STYLE}</style>\n</head>", 1)


def _index(folder: Path, pages: Sequence[Page]) -> str:
    rows = "\n".join(_index_row(folder, page) for page in pages)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="UTF-8"><title>Data gate</title><style>{STYLE}</style></head>
<body><div class="container-fluid"><h4>Data gate</h4>
<p>What Great Expectations found in the telemetry of each workload.</p>
<table class="table">
<thead><tr><th>Workload</th><th>Verdict</th><th>Rows</th><th>Rules</th><th>Broken</th></tr></thead>
<tbody>
{rows}
</tbody></table></div></body></html>
"""


def _index_row(folder: Path, page: Page) -> str:
    results = sorted((folder / "validations" / page.name).rglob("*.html"))
    workload = html.escape(page.workload)
    if results:
        workload = f'<a href="{results[-1].relative_to(folder).as_posix()}">{workload}</a>'
    icon = "fa-check-circle text-success" if page.passed else "fa-times text-danger"
    broken = "".join(f"<p>{html.escape(message)}</p>" for message in page.messages) or "none"
    verdict = "passed" if page.passed else "failed"
    return (f'<tr><td>{workload}</td><td style="white-space: nowrap"><i class="{icon}"></i> {verdict}</td>'
            f"<td>{page.rows}</td><td>{page.rules}</td><td>{broken}</td></tr>")
