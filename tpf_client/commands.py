"""The entry points of all commands. Whatever ends one gives at most one line.

It loads nothing slow. Exit status: 0, 1 (failed), 2 (wrong use), 129, 130 and 143 (hung up,
interrupted, terminated), 141 (nobody reads the output).
"""

import io
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from annotations.wording import how_to_install, printable

_CLOSED_PIPE = 141
"""As a shell counts it: 128 and the number of SIGPIPE, which not every system has."""
_ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
_SYSTEM = frozenset({"fcntl", "resource", "pwd"})
"""Modules of Python itself that only POSIX systems have."""

_ENDING = re.compile(r"(-script\.pyw?|\.exe)\Z")
"""Endings of scripts on Windows, where people write names in either case."""


class _Command(NamedTuple):
    """A command; `needs` are modules of its extras that it loads only sometimes."""

    module: str
    attribute: str
    extras: str = ""
    needs: tuple[str, ...] = ()


COMMANDS = {
    "tpf-query": _Command("tpf_client.app.cli", "app", "cli"),
    "tpf-query serve": _Command("tpf_client.app.serving", "app", "cli"),
    "tpf-query page": _Command("tpf_client.app.page_command", "app", "cli"),
    "tpf-server": _Command("tpf_server.cli", "main", "server"),
    "tpf-load": _Command("loaders.cli", "load_app", "loaders"),
    "tpf-replay": _Command("loaders.commands.replay", "app", "loaders", ("pyarrow",)),
    "tpf-continuous": _Command("tpf_server.continuous.service.cli", "app", "server"),
    "tpf-experiments": _Command("experiments.cli", "app", "server,loaders,experiments"),
    "tpf-demo": _Command(
        "experiments.demo", "app", "server,loaders", ("granian", "flask", "pandas")
    ),
}


def run(name: str, arguments: Sequence[str]) -> int:
    """Run a command to its end; return the exit status."""
    program = name.partition(" ")[0]
    try:
        # A module could swallow an exception while it is loaded; nothing is to be cleaned up yet.
        with _heeding({signal.SIGINT: lambda *_: _leave(program)}):
            command = _loaded(COMMANDS[name])
        with _heeding(dict.fromkeys(_ENDINGS, _end)):
            if _COMPLETING.format(_shouted(program)) in os.environ:
                return _completed(command, program)
            status = _invoked(command, name, arguments)
        if not status:  # otherwise what failed was said already
            sys.stdout.flush()
    except KeyboardInterrupt:
        return _say(program, "interrupted", 128 + signal.SIGINT)
    except BrokenPipeError:
        return _CLOSED_PIPE
    except ImportError as error:
        return _say(program, _what_is_missing(error, COMMANDS[name]))
    except OSError as error:
        return _say(program, _what_failed(error))
    return status


def _loaded(command: _Command) -> Any:
    from importlib import import_module
    from importlib.util import find_spec

    from typer import Typer

    for module in command.needs:
        if find_spec(module) is None:
            raise ModuleNotFoundError(module, name=module)
    app = getattr(import_module(command.module), command.attribute)
    return _typed(app) if isinstance(app, Typer) else _plain(app)


_VERSION = "Show the version and stop."


def _typed(app: Any) -> Any:
    from typer import Context, Option, Typer
    from typer.main import get_command

    def show(context: Context, version: bool) -> None:
        if version:
            _show_version(context)

    def command(
        version: bool = Option(
            False, "--version", is_eager=True, expose_value=False, callback=show, help=_VERSION
        ),
    ) -> None:
        """Exists for its option: typer has a click of its own, and makes the options of it."""

    holder = Typer(add_completion=False)
    holder.command()(command)
    loaded = get_command(app)
    loaded.params.extend(get_command(holder).params)
    return loaded


def _plain(command: Any) -> Any:
    from copy import copy

    from click import Context, Option, Parameter

    def show(context: Context, _option: Parameter, version: bool) -> None:
        if version and not context.resilient_parsing:
            _show_version(context)

    result = copy(command)  # it may be run again in this process
    result.params = [
        *command.params,
        Option(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=show,
               help=_VERSION),
    ]  # fmt: skip
    return result


def _show_version(context: Any) -> None:
    from importlib.metadata import version

    sys.stdout.write(f"{context.find_root().info_name} {version('live-linked-data')}\n")
    context.exit()


_COMPLETING = "_{}_COMPLETE"
"""The variable by which a shell asks for completions, as click and typer name it."""
_INSTRUCTIONS = ("source", "complete")


def _shouted(program: str) -> str:
    return program.replace("-", "_").upper()


def _completed(command: Any, program: str) -> int:
    from typer.completion import get_completion_inspect_parameters

    get_completion_inspect_parameters()  # makes the shells known that typer completes for
    variable = _COMPLETING.format(_shouted(program))
    # Typer says source_bash where click says bash_source; people need not know who made a command.
    words = os.environ[variable].split("_", 1)
    typed = type(command).__module__.startswith("typer.")
    os.environ[variable] = "_".join(sorted(words, key=_INSTRUCTIONS.__contains__, reverse=typed))
    try:
        command.main([], prog_name=program, complete_var=variable)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 1


def _invoked(command: Any, name: str, arguments: Sequence[str]) -> int:
    try:
        with command.make_context(
            name, list(arguments), help_option_names=["-h", "--help"]
        ) as context:
            command.invoke(context)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Exception as error:
        # Typer has a click of its own beside that of the package click: what they raise is told by
        # its attributes. So are our own errors that a user may have caused.
        status = getattr(error, "exit_status", getattr(error, "exit_code", None))
        if not isinstance(status, int):
            raise
        if hasattr(error, "show"):
            shown = io.StringIO()
            error.show(shown)
            # Typer puts pydantic's words before those of a parser.
            sys.stderr.write(shown.getvalue().replace(": Value error, ", ": ", 1))
        elif hasattr(error, "exit_status"):
            _say(name.partition(" ")[0], str(error))
        return status
    return 0


@contextmanager
def _heeding(handlers: Mapping[int, Any]) -> Iterator[None]:
    """Handle signals, except those ignored, as in the background or under nohup."""
    before = {number: signal.getsignal(number) for number in handlers}
    heeded = {number: what for number, what in before.items() if what is not signal.SIG_IGN}
    for number in heeded:
        signal.signal(number, handlers[number])
    try:
        yield
    finally:
        for number, handler in heeded.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - as handlers are
    raise SystemExit(128 + number)


def _leave(program: str) -> NoReturn:
    os.write(2, f"{program}: interrupted\n".encode())
    os._exit(128 + signal.SIGINT)


def _say(program: str, text: str, status: int = 1) -> int:
    try:
        sys.stderr.write(f"{program}: {printable(text)}\n")
        sys.stderr.flush()
    except OSError:
        pass
    return status


def _what_failed(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason


def _what_is_missing(error: ImportError, command: _Command) -> str:
    ours = {each.module.partition(".")[0] for each in COMMANDS.values()} | {"annotations"}
    package = (error.name or "").partition(".")[0]
    if not package or package in ours or not isinstance(error, ModuleNotFoundError):
        raise error
    if package in _SYSTEM:
        return f"this needs a POSIX system: Python has no module {package} here"
    installation = how_to_install(_EXTRAS.get(package, command.extras))
    return f"{package} is not installed: {installation}"


_EXTRAS = {"psycopg": "postgres", "pyspark": "spark", "py4j": "spark"}
"""Extras that only some uses of a command need."""


def _open_closed_streams() -> None:
    """Open standard streams that are closed, or other files would take their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # An answer that nobody gets is an error, so output cannot be written.
            os.dup2(os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_RDWR), number)
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - it stays open


def _standard_output() -> io.TextIOWrapper:
    output = NamedOutput(1, "standard output")
    # The formats of answers are UTF-8 in every locale; a terminal shows of them what it can.
    encoding, errors = "utf-8", sys.stdout.errors
    if terminal := output.isatty():
        encoding, errors = sys.stdout.encoding, "replace"
    return io.TextIOWrapper(io.BufferedWriter(output), encoding, errors, line_buffering=terminal)


def _close_output() -> None:
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except (OSError, ValueError):
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), number)


class NamedOutput(io.FileIO):
    """An unbuffered output file whose errors have a name."""

    def __init__(self, file: Any, name: str) -> None:
        super().__init__(file, "w", closefd=not isinstance(file, int))
        self._called = name

    def write(self, data: Any) -> int:
        """Write some of it; return how many bytes."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self._called
            raise


def main() -> NoReturn:
    """Run the command that has the name of the script."""
    name = _ENDING.sub("", os.path.basename(sys.argv[0]).lower())
    arguments = sys.argv[1:]
    if _COMPLETING.format(_shouted(name)) in os.environ:
        line = os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", ""))
        arguments = line.split()[1:]
    if f"{name} {' '.join(arguments[:1])}" in COMMANDS:
        name, arguments = f"{name} {arguments[0]}", arguments[1:]
    _open_closed_streams()
    sys.stdout = _standard_output()
    status = run(name, arguments)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        # Nothing is left that an exception could clean up.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _close_output()
    # CPython remembers an interrupt of code that was text, as that of a dataclass is, until other
    # text runs: `python -m commands` would end by the signal instead of with the status.
    exec("")  # noqa: S102
    sys.exit(status)


if (
    __name__ == "__main__"
):  # python -m tpf_client.commands tpf-query …: where no scripts are installed
    del sys.argv[0]
    main()
