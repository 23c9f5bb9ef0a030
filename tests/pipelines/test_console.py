"""What comes from files is printed as it is: no markup, no links, no escape sequences, nothing that turns it round."""

import io
from typing import Any

import pytest
import typer
from rich.table import Table
from typer.testing import CliRunner

from feature_store.errors import InputError
from pipelines.console import PlainConsole, err, out, plain, reported
from pipelines.run_summary import summary_table

NAMES = ["[/red]", "[conceal]psi", "[link=http://evil]psi", "psi[black on black]", ":warning:", "\\[red]",
         "[bold]psi[/]"]
UNSEEN = {"psi\x1b[2Jx": "psi\\x1b[2Jx", "psi\u202Eisp": "psi\\u202eisp", "a\rb": "a\\rb", "a\x9b1mb": "a\\x9b1mb"}


def printed(*objects: Any) -> str:
    file = io.StringIO()
    PlainConsole(file=file, force_terminal=True, color_system="truecolor", width=200).print(*objects, highlight=False)
    return file.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_markup_in_a_name_is_text(name: str) -> None:
    table = Table("column", name)
    table.add_row("value", name)
    for shown in (printed(name), printed(plain(name)), printed(table)):
        assert name in shown
        assert "\x1b]8" not in shown, "no link"
    assert printed(name) == f"{name}\n"


@pytest.mark.parametrize(("name", "expected"), UNSEEN.items())
def test_what_would_steer_the_terminal_is_shown_as_its_escape(name: str, expected: str) -> None:
    table = Table("column", name, box=None, show_header=False)
    table.add_row("value", name)
    for shown in (printed(name), printed(plain(name))):
        assert shown == f"{expected}\n"
    assert expected in printed(table)
    assert name not in printed(table)


def test_lines_stay_lines_and_styles_stay_styles() -> None:
    assert printed("a\nb") == "a\nb\n"
    assert printed(plain("a", "red")) == "\x1b[31ma\x1b[0m\n"


@pytest.mark.parametrize("name", [*NAMES, *UNSEEN])
def test_an_error_with_such_a_name_is_one_plain_line(name: str) -> None:
    app = typer.Typer()

    @app.command()
    @reported
    def fail() -> None:
        raise InputError(f"name must be known, got {name}")

    done = CliRunner().invoke(app, [])
    assert done.exit_code == 2
    said = name.replace("\r", " ")  # an error is one line, whatever its parts hold
    assert done.stderr == f"error: name must be known, got {UNSEEN.get(said, said)}\n"


def test_all_consoles_of_the_commands_are_plain() -> None:
    assert isinstance(out, PlainConsole)
    assert isinstance(err, PlainConsole)


def test_the_table_of_a_run_shows_names_as_they_are() -> None:
    names = ("test_mse", "test_accuracy", "twin_test_accuracy", "verification_iterations", "verification_seconds")
    metrics = dict.fromkeys(names, 1.0)
    gates = {"gates": [{"name": "gate", "passed": False}]}
    entry = {"workload": "[bold]a", "status": "[red]", "metrics": metrics, "gates": gates, "figures": [],
             "verdict": "[link=http://evil]PROVED", "version": 1, "alias": None}
    shown = printed(summary_table({"entries": [entry, {**entry, "gates": None}]}))
    assert "[bold]a" in shown
    assert "[link=http://evil]PROVED" in shown
    assert "\x1b]8" not in shown
