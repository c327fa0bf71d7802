"""All commands: interrupts, missing extras, failing files and disks."""

import os
import re
import resource
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.tpf_client.conftest import Done
from tpf_client.commands import COMMANDS

PACKAGE = "live-linked-data"
PROJECT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
# Modules whose distribution has another name; what the client needs itself is never missing.
MODULES = {"gtfs-realtime-bindings": "google", "paho-mqtt": "paho"}


def heed_interrupts() -> None:
    """Tests that run in the background inherit that interrupts are ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(
    name: str, *arguments: str, before: str = "", **options: object
) -> "subprocess.CompletedProcess[str]":
    """Run a command, after some lines of Python."""
    program = f"import sys\n{before}\nfrom tpf_client.commands import main\n"
    program += "sys.argv = sys.argv[1:]\nmain()"
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": PROJECT} | options
    return subprocess.run(
        [sys.executable, "-c", program, *name.split(), *arguments],
        text=True, check=False, timeout=120, preexec_fn=heed_interrupts, **given,  # type: ignore[call-overload]
    )  # fmt: skip


def modules_of(extra: str) -> list[str]:
    names = [re.split(r"[\[<>=~]", each)[0] for each in EXTRAS[extra]]
    return [MODULES.get(name, name.replace("-", "_")) for name in names]


def test_the_scripts_are_the_commands() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["scripts"] == {n: "tpf_client.commands:main" for n in COMMANDS if " " not in n}


@pytest.mark.parametrize("name", ["tpf-query serve", "tpf-server"])
def test_an_interrupt_while_modules_are_loaded(name: str, tmp_path: Path) -> None:
    # Also where a module that is being loaded takes no notice of exceptions.
    (tmp_path / "typer.py").write_text(
        "import os, signal\ntry:\n os.kill(os.getpid(), signal.SIGINT)\n"
        "except BaseException:\n pass\n"
    )
    done = run(name, "--help", before=f"sys.path.insert(0, {str(tmp_path)!r})")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == f"{name.split()[0]}: interrupted\n"


def test_an_interrupt_of_code_that_was_text(tmp_path: Path) -> None:
    # As it may come while a dataclass is made; whoever runs a module with -m would see the signal.
    (tmp_path / "interrupted.py").write_text(
        "import click, os, sys\nfrom tpf_client import commands\n"
        "app = click.Command('tpf-query', callback=lambda: exec('os.kill(os.getpid(), 2)'))\n"
        "commands.COMMANDS['tpf-query'] = commands._Command('interrupted', 'app')\n"
        "if __name__ == '__main__':\n    sys.argv[0] = 'tpf-query'\n    commands.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "interrupted"], cwd=tmp_path, check=False, timeout=60,
        capture_output=True, text=True, preexec_fn=heed_interrupts,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "tpf-query: interrupted\n")


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        (name, extra)
        for name, command in COMMANDS.items()
        for extra in filter(None, command.extras.split(","))
    ],
)
def test_an_extra_that_is_not_installed(name: str, extra: str) -> None:
    missing = modules_of(extra)
    done = run(
        name,
        "--help",
        before=f"""class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())""",
    )
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert line.startswith(f"{name.partition(' ')[0]}: ")
    assert (
        f"in a clone of the project, ./run install, or pip install '.[{COMMANDS[name].extras}]'"
        in line
    )


# What Python has on POSIX systems only, as far as commands that run elsewhere could meet it.
ELSEWHERE = """import signal
for name in dir(signal):
    if name in ("SIGPIPE", "SIGHUP", "SIGKILL", "SIGCHLD", "SIGALRM", "pthread_sigmask"):
        delattr(signal, name)
for module in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[module] = None"""


@pytest.mark.parametrize("name", ["tpf-query", "tpf-query serve", "tpf-load", "tpf-replay"])
def test_commands_start_on_systems_that_are_not_posix(name: str) -> None:
    done = run(name, "--help", before=ELSEWHERE)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage" in done.stdout


@pytest.mark.parametrize("script", ["tpf-query.exe", "tpf-query-script.py", "TPF-QUERY.EXE"])
def test_names_of_scripts_on_windows(
    script: str, tmp_path: Path, called: Callable[..., Done]
) -> None:
    done = called(str(tmp_path / script), "serve", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "tpf-query serve" in done.stdout


def test_what_needs_a_posix_system_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.nt").write_text("<x:a> <x:b> <x:c> .\n")
    arguments = ("rdf", str(tmp_path / "a.nt"), "-o", str(tmp_path / "store"), "--engine", "local")
    done = run("tpf-load", *arguments, before=ELSEWHERE)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("tpf-load: this needs a POSIX system")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_version(name: str, called: Callable[..., Done]) -> None:
    done = called(name, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{name} {version(PACKAGE)}\n", "")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tpf-query --fo", {"--format"}),
        ("tpf-query serve --allow-s", {"--allow-service"}),
        ("tpf-server --por", {"plain,--port"}),
        ("tpf-server restore --dat", {"plain,--data-dir"}),
        ("tpf-load gt", {"gtfs", "gtfs-rt"}),
        ("tpf-replay irail --tok", {"--token", "--token-file"}),
        ("tpf-continuous run --sem", {"--semantics"}),
        ("tpf-experiments run --q", {"--quick"}),
        ("tpf-demo --s", {"--seconds"}),
    ],
)
def test_a_shell_asks_what_comes_next(
    line: str, expected: set[str], called: Callable[..., Done]
) -> None:
    program, *words = line.split()
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    source = called(program, **{variable: "bash_source"})
    asking = re.search(rf"{variable}=(\w+)", source.stdout)
    assert asking is not None, source.stderr
    # The script that it gave asks like this.
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words)), variable: asking[1]}
    done = called(program, **asked)
    assert (done.returncode, set(done.stdout.split()), done.stderr) == (0, expected, "")


def test_a_command_is_a_process_of_its_own() -> None:
    with Path("/dev/full").open("w") as full:
        assert run("tpf-query", "--version", stdout=full).returncode == 1


@pytest.mark.parametrize(
    ("closing", "query", "expected"),
    [
        (">&-", ["ASK {}"], (1, "", "tpf-query: standard output: Bad file descriptor\n")),
        ("2>&-", ["ASK {}"], (0, "true\n", "")),
        ("<&-", ["ASK {}"], (0, "true\n", "")),
        ("<&-", ["-f", "-"], (1, "", "tpf-query: line 1, column 1: expected SELECT, ASK, ")),
    ],
)
def test_standard_streams_that_are_closed(
    closing: str, query: list[str], expected: tuple[int, str, str], tmp_path: Path
) -> None:
    (tmp_path / "a.nt").write_text("<x:a> <x:b> <x:c> .\n")
    command = [sys.executable, "-m", "tpf_client.commands", "tpf-query", str(tmp_path / "a.nt")]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closing}', "sh", *command, *query],
        cwd=PROJECT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    said = done.stderr if done.returncode == 0 else done.stderr[: len(expected[2])]
    assert (done.returncode, done.stdout, said) == expected


@pytest.mark.parametrize("format_", ["csv", "table"])
def test_answers_are_utf_8_in_every_locale(format_: str, tmp_path: Path) -> None:
    (tmp_path / "a.nt").write_text('<x:a> <x:b> "café \u2192" .\n', "utf-8")
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    asked = ("SELECT ?o { ?s ?p ?o }", "--format", format_)
    done = run("tpf-query", str(tmp_path / "a.nt"), *asked, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "café \u2192" in done.stdout


def test_a_byte_order_mark_before_a_query_is_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "a.nt").write_text("<x:a> <x:b> <x:c> .\n")
    query = tmp_path / "a.rq"
    query.write_text("ASK {}", "utf-8-sig")
    for name in (str(query), "-"):
        with query.open() as file:
            done = run("tpf-query", str(tmp_path / "a.nt"), "-f", name, stdin=file)
        assert (done.returncode, done.stdout, done.stderr) == (0, "true\n", "")


def test_a_shell_that_nobody_knows(called: Callable[..., Done]) -> None:
    done = called("tpf-query", "--help", _TPF_QUERY_COMPLETE="csh_source")
    assert (done.returncode, done.stdout) == (1, "")
    assert "csh not supported" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ("tpf-load rdf {0}/big.nt -o {0}/out --engine local", "{0}/out"),
        ("tpf-load csv {0}/a.json -o {0}/out --format ntriples --engine local", "{0}/out"),
        ("tpf-server {0}/big.nt --data-dir {0}/data --port 0", "{0}/data/indexes"),
        ("tpf-load rdf {0}/big.nt -o {0}/big.nt/store", "{0}/big.nt/store"),
        ("tpf-server {0}/big.nt --data-dir {0}/big.nt/data --port 0", "{0}/big.nt/data"),
        ("tpf-continuous run {0}/q --stream urn:s={0}/none.tsv --output {0}/no/x", "{0}/no/x"),
        ("tpf-experiments run load --quick --output {0}/big.nt/x", "{0}/big.nt/x"),
        ("tpf-replay irail {0} http://127.0.0.1:9/x", "{0}"),
        ("tpf-query http://127.0.0.1:9/x -f {0}/no.rq", "{0}/no.rq"),
    ],
)
def test_what_cannot_be_written_or_read_is_named(
    tmp_path: Path,
    arguments: str,
    path: str,
    called: Callable[..., Done],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = (f'<http://e/{n}> <http://e/p> "{n}" .\n' for n in range(3000))
    (tmp_path / "big.nt").write_text("".join(lines))
    (tmp_path / "a.csv").write_text("a\n" + "x\n" * 3000)
    (tmp_path / "a.json").write_text(
        '{"url": "a.csv", "tableSchema": {"columns": [{"name": "a","propertyUrl": "http://e/p"}]}}'
    )
    (tmp_path / "q").write_text("SELECT * { STREAM <urn:s> [NOW] { ?s ?p ?o } }")
    # Files cannot grow: as on a disk that is full. Bytecode would be cut off, too, and stay so.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, most[1]))
    try:
        done = called(*arguments.format(tmp_path).split())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{arguments.split()[0]}: {path.format(tmp_path)}"), line
