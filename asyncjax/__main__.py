"""`asyncjax COMMAND ...`, also `python -m asyncjax COMMAND ...`: one door to the commands.

    asyncjax whatif durations.csv
    asyncjax rollouts lengths.csv
    asyncjax check-control manager.py --batch 32 --slots 128 --max-staleness 4
    asyncjax links measured.csv --parameters 30.8e6 --workers 4
    asyncjax study my_rule.py

What stands after the name of a command is handed to it as it is.
"""

import sys
from collections.abc import Sequence
from importlib import import_module

from asyncjax import __version__
from asyncjax.terminal import quietly

COMMANDS = {
    "whatif": (
        "asyncjax.whatif.command",
        "which way of training would cope best with your uneven workers, from a table of durations",
    ),
    "rollouts": (
        "asyncjax.rollouts.command_line",
        "what an admission rule of rollouts costs, from a file of sample lengths",
    ),
    "check-control": (
        "asyncjax.rollouts.control_command",
        "whether a staleness manager of your own is right, from a Python file",
    ),
    "links": (
        "asyncjax.clocks.links_command",
        "what share of time workers compute over a slow network, from measured runs or a bandwidth",
    ),
    "study": (
        "asyncjax.study.command",
        "how good a rule of your own is beside the built-in ones, from a Python file",
    ),
}
_WIDTH = max(map(len, COMMANDS)) + 2
HELP = "\n".join(
    [
        "usage: asyncjax COMMAND ...",
        "",
        *(f"  {name:<{_WIDTH}}{about}" for name, (_, about) in COMMANDS.items()),
        "",
        "asyncjax COMMAND --help tells of one of them, asyncjax --version which release this is.",
    ]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status, 2 where none of ours is named.

    Example:
        >>> main(["--version"]) == 0
        asyncjax ...
        True
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    return quietly(lambda: _run(given))


def _run(given: list[str]) -> int:
    name, rest = (given[0], given[1:]) if given else ("", [])
    if name in COMMANDS:
        return import_module(COMMANDS[name][0]).main(rest, program=f"asyncjax {name}")
    if name in ("-h", "--help", "help"):
        print(HELP)
        return 0
    if name in ("-V", "--version"):
        print(f"asyncjax {__version__}")
        return 0
    if name:
        words = f"there is no command {name!r}; commands are {', '.join(COMMANDS)}"
        print(f"asyncjax: {words}", file=sys.stderr)
    else:
        print(HELP, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
