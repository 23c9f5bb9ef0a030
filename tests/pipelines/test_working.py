"""What all commands share: long work that says so on a terminal, names that are cut in the middle."""

import io

import pytest
from rich.console import Console

from pipelines import console
from pipelines.console import shortened, working


def said(monkeypatch: pytest.MonkeyPatch, terminal: bool, quiet: bool = False) -> str:
    text = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=text, force_terminal=terminal, width=80))
    with working("compiling the pipeline", quiet):
        pass
    return text.getvalue()


def test_long_work_is_named_on_a_terminal_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "compiling the pipeline ..." in said(monkeypatch, terminal=True)
    assert said(monkeypatch, terminal=False) == "" and said(monkeypatch, terminal=True, quiet=True) == ""


@pytest.mark.parametrize(("text", "width", "cut"), [
    ("redis", 5, "redis"), ("spark-kmeans-0007", 11, "spark…-0007"), ("spark-kmeans-0007", 10, "spark…0007")])
def test_a_name_keeps_its_start_and_its_end(text: str, width: int, cut: str) -> None:
    assert shortened(text, width) == cut and len(cut) <= width
