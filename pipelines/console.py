"""What all commands share: output for people or machines, and errors as exit codes.

Text is printed as it is: names come from other people's files, so nothing in a text is markup or an escape sequence to
the terminal. What shall have a style is a rich `Text`, made by `plain`.

Exit codes: 0 done, 1 the job said no (a gate failed, a proof is missing, a signature is wrong),
2 bad usage or input, 75 another run holds the lock (try again).
"""

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from feature_store.errors import AssayError, InputError
from feature_store.names import printable
from models.configuration import Configuration, load_configuration


class PlainConsole(Console):
    """Prints texts, also those in the cells of a table, without reading markup and with control characters escaped."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """See `rich.console.Console`."""
        return super().render_str(printable(text, _LINE_BREAKS), **options)


def plain(text: str, style: str = "") -> Text:
    """A text as it is, in a style."""
    return Text(printable(text, _LINE_BREAKS), style=style)


_LINE_BREAKS = "\n"  # what ends a line
SHIPPED_CONFIGURATION = Path(__file__).resolve().parents[1] / "mlflow.yaml"
GENERIC = Path(__file__).resolve().parents[1] / "data" / "generic"  # policies for services of all kinds
out = PlainConsole()
err = PlainConsole(stderr=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="mlflow.yaml to use; default: $ASSAY_CONFIG, ./mlflow.yaml, or the clone's own.")]
KeyOption = Annotated[Path | None, typer.Option("--public-key", help="Key of the signer; default: the project's.")]
Function = TypeVar("Function", bound=Callable[..., Any])


def reported(command: Function) -> Function:
    """Turns the project's errors into one line on stderr (with --json: one JSON document) and an exit code."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except AssayError as error:
            raise _exit(error, bool(kwargs.get("json_output"))) from None
        except KeyboardInterrupt:
            err.print("stopped")
            raise typer.Exit(130) from None

    return wrapper  # type: ignore[return-value]


def _exit(error: AssayError, as_json: bool) -> typer.Exit:
    """Says it, and returns what ends the command."""
    if as_json:
        print_json({"error": str(error), "exit_code": error.exit_code})
    else:
        err.print(plain("error:", "bold red") + plain(f" {error}"), soft_wrap=True, highlight=False)
    return typer.Exit(error.exit_code)


class CommandLine(typer.Typer):
    """Commands that refuse an empty value, of which a path would be the current folder.

    But for options that are empty where they are not given: there it says nothing else.
    """

    def command(self, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
        """See `typer.Typer`."""
        return super().command(name, cls=_WithoutEmptyValues, **options)


class _WithoutEmptyValues(TyperCommand):
    """A command line looked at before it is read: an empty path is the current folder afterwards."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `TyperCommand`."""
        words = list(args)
        rest = super().parse_args(ctx, args)
        given, _, _ = self.make_parser(ctx).parse_args(args=words)
        for parameter in self.params:
            values = given.get(parameter.name)
            if "" in (values if isinstance(values, list | tuple) else [values]) and parameter.default != "":
                name = parameter.opts[0]
                left_out = "" if parameter.required else ", or leave it out"
                error = InputError(f"{name} must have a value, got an empty one; give one{left_out}")
                raise _exit(error, bool(ctx.params.get("json_output")))
        return rest


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=1, default=str) + "\n")


def print_table(table: Table) -> None:
    """A table within the terminal; in its full width where standard output is none: a file has room for all.

    $COLUMNS bounds it in either case.
    """
    bounded = line_width() is not None
    if not bounded:
        table.width = Measurement.get(out, out.options.update(max_width=sys.maxsize), table).maximum
    out.print(table, crop=bounded, soft_wrap=not bounded)


def folding_table(*names: str) -> Table:
    """Columns that fold long names rather than cut them."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in names:
        table.add_column(Text(name), overflow="fold")
    return table


def line_width() -> int | None:
    """Signs in a line of standard output: a terminal's or $COLUMNS; None: as many as there are."""
    return out.width if out.is_terminal or "COLUMNS" in os.environ else None


def print_line(text: str) -> None:
    """A line as it is: no markup, no colours, no line breaks that a reader's grep would stumble over."""
    out.print(text, highlight=False, markup=False, soft_wrap=True)


def print_note(text: str) -> None:
    """The same on stderr, beside JSON on stdout."""
    err.print(text, highlight=False, markup=False, soft_wrap=True)


def shortened(text: str, width: int) -> str:
    """The text in at most `width` signs, its start and its end: names often differ at the end."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[:width - 1 - end]}…{text[len(text) - end:]}"


@contextmanager
def working(what: str, quiet: bool = False) -> Iterator[None]:
    """Says on a terminal what is going on, beside a clock that turns, for as long as the block takes."""
    with err.status(f"{what} ...") if err.is_terminal and not quiet else nullcontext():
        yield


def found_configuration() -> Path | None:
    """$ASSAY_CONFIG, ./mlflow.yaml, or that of the clone in which this code lies; None: there is none.

    The one that a wheel brings is what `assay init` copies: its state folder would lie among installed packages.
    """
    here = Path("mlflow.yaml")
    if named := os.environ.get("ASSAY_CONFIG"):
        return Path(named)
    if here.is_file():
        return here
    return SHIPPED_CONFIGURATION if SHIPPED_CONFIGURATION.with_name("pyproject.toml").is_file() else None


def configuration_from(path: Path | None) -> Configuration:
    """The configuration that --config, the environment or the current folder name. Raises InputError: none does."""
    path = path or found_configuration()
    if path is None:
        raise InputError(f"mlflow.yaml must be in the current folder, got none ({Path.cwd()}); `assay init` writes "
                         "one, --config or $ASSAY_CONFIG names another")
    if not path.is_file():
        raise InputError(f"configuration must be an existing file, got {path}")
    # the steps of a pipeline run in processes of their own and read it from there
    os.environ["ASSAY_CONFIG"] = str(path.resolve())
    return load_configuration(path)
