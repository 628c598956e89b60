"""The command line: one function per command, and one way to show an error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from specbench.cli.advise import advise
from specbench.cli.check import check
from specbench.cli.compare import compare
from specbench.cli.doctor import doctor
from specbench.cli.importing import import_
from specbench.cli.ls import ls
from specbench.cli.map import speed_map
from specbench.cli.pipe import quiet_end
from specbench.cli.rank import rank
from specbench.cli.report import report
from specbench.cli.run import run
from specbench.cli.theory import theory
from specbench.cli.train_draft import train_draft
from specbench.cli.typed import Told, flowed, in_our_words, is_help
from specbench.cli.validate import validate
from specbench.cli.verify import verify
from specbench.errors import SpecbenchError
from specbench.settings.recipe_faults import RUN_HELP
from specbench.signs import Signs, never_die_of_a_sign
from specbench.version import VERSION

ALIKE = ("map", "rank", "train-draft", "verify")
"""Commands that take flags of `run`, and show them in their own help."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"specbench {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (any position).")
    ] = False,
) -> None:
    """Benchmark draft/target pairs for speculative decoding."""


COMMANDS: dict[str, Callable[..., object]] = {
    "run": quiet_end(run),
    "rank": quiet_end(rank),
    "verify": verify,
    "report": quiet_end(report),
    "compare": quiet_end(compare),
    "check": quiet_end(check),
    "advise": quiet_end(advise),
    "theory": quiet_end(theory),
    "ls": quiet_end(ls),
    "validate": validate,
    "doctor": doctor,
    "map": quiet_end(speed_map),
    "train-draft": train_draft,
    "import": quiet_end(import_),
}
for _name, _command in COMMANDS.items():
    app.command(_name, help=flowed(_command.__doc__ or ""))(_command)


def main() -> None:
    """Run the command line; a user's error is shown as its lines and ends in its exit code."""
    never_die_of_a_sign(sys.stdout, sys.stderr)
    debug = "--debug" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--debug"]
    try:
        try:
            code = app(words, prog_name="specbench", standalone_mode=False)
        except Told as error:
            if is_help(error):
                error.show()  # type: ignore[attr-defined]
                sys.exit(2)
            raise in_our_words(error) from error
    except SpecbenchError as error:
        if debug:
            raise
        if error.hint == RUN_HELP and words[0] in ALIKE:
            error.hint = f"specbench {words[0]} --help"
        print(Signs(sys.stderr)("\n".join(error.lines())), file=sys.stderr)
        sys.exit(error.exit_code)
    sys.exit(code)
