"""Shell completion, and short options: one letter means one thing in all commands."""

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from pipelines import controller_command_line
from pipelines.command_line import app

ASSAY = Path(sys.executable).with_name("assay")
# what a shell asks, and how it says where the cursor stands
ASKED = {"bash": {"COMP_WORDS": "assay audit", "COMP_CWORD": "1"}, "zsh": {"_TYPER_COMPLETE_ARGS": "assay audit"},
         "fish": {"_TYPER_COMPLETE_ARGS": "assay audit", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}}
BASH = """
eval "$(_ASSAY_COMPLETE=source_bash {assay})"
COMP_WORDS=(assay schedule cr) COMP_CWORD=2
$(complete -p assay | sed -E 's/.*-F ([^ ]+) .*/\\1/') assay cr schedule
echo "${{COMPREPLY[@]}}"
"""


def call(*arguments: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(app, arguments, prog_name="assay")


@pytest.mark.parametrize("shell", ASKED)
def test_show_completion_prints_the_script_of_the_shell(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # which looks at the parent process
    done = call("--show-completion", shell)
    assert done.exit_code == 0, done.output
    assert f"complete_{shell}" in done.stdout and "_ASSAY_COMPLETE" in done.stdout


@pytest.mark.parametrize("shell", ASKED)
def test_a_command_that_was_begun_is_completed(shell: str) -> None:
    done = call(_ASSAY_COMPLETE=f"complete_{shell}", **ASKED[shell])
    assert set(re.findall(r"audit[a-z-]*", done.stdout)) >= {"audit", "audit-registry"}, done.output
    assert "promote" not in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None or not ASSAY.is_file(), reason="bash and the installed command")
def test_bash_completes_a_command_of_a_group() -> None:
    done = subprocess.run(["bash", "--norc", "-c", BASH.format(assay=ASSAY)], capture_output=True, text=True,
                          check=True, env={"PATH": f"{ASSAY.parent}:/usr/bin:/bin"})
    assert done.stdout.split() == ["create"], done.stderr


def short_options() -> dict[str, dict[str, list[str]]]:
    """Letter -> the long option that it stands for -> the commands in which it does; those of both programs."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))

    def look(command: Any, path: str) -> None:
        for parameter in command.params:
            for option in (*parameter.opts, *parameter.secondary_opts):
                if re.fullmatch(r"-\w", option):
                    found[option][max(parameter.opts, key=len)].append(path)
        for name, inner in getattr(command, "commands", {}).items():
            look(inner, f"{path} {name}")

    look(typer.main.get_command(app), "assay")
    parsers: list[Any] = [controller_command_line.make_parser()]
    for parser in parsers:
        for action in parser._actions:
            if isinstance(action.choices, dict):
                parsers += action.choices.values()
            for option in action.option_strings:
                if re.fullmatch(r"-\w", option) and option != "-h":
                    found[option][max(action.option_strings, key=len)].append(parser.prog)
    return found


def test_one_letter_means_one_thing_in_all_commands() -> None:
    found = short_options()
    assert {"-w", "-t"} <= set(found)
    assert {letter: dict(meanings) for letter, meanings in found.items() if len(meanings) > 1} == {}
