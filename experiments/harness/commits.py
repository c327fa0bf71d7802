"""An experiment at two commits, measured in turn, so that both meet what else the machine does."""

import os
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from experiments.errors import ConfigurationError, MeasurementError, UnavailableError
from experiments.harness.comparison import FinishedRun, read_run, runs_together

_START = "from experiments.cli import app; app(prog_name='tpf-experiments')"
_END = 60.0
"""Seconds that a run has to end the processes that it started."""


def measure_alternately(
    project: Path,
    commits: tuple[str, str],
    experiment: str,
    rounds: int,
    arguments: Sequence[str],
    config: Path | None,
    say: Callable[[str], None],
) -> tuple[FinishedRun, FinishedRun]:
    """Measure an experiment at two commits, round after round.

    Args:
        project: the folder of the repository.
        commits: the one before, and the one after.
        experiment: its name.
        rounds: how often each commit is measured.
        arguments: further ones of ``tpf-experiments run``.
        config: its sizes; repetitions are one for each round where the file does not say it.
        say: shows a line of progress.

    Raises:
        ConfigurationError: there is no such commit.
        UnavailableError: there is no repository, or no git.
        MeasurementError: a run could not be made.
    """
    found = [_commit(project, name) for name in commits]
    with tempfile.TemporaryDirectory(prefix="tpf-compare-") as scratch:
        folder = Path(scratch)
        # Data of others are beside the project.
        if (shared := project.parent / "shared").is_dir():
            (folder / "shared").symlink_to(shared)
        sizes = folder / "sizes.toml"
        sizes.write_text(_sizes(config), encoding="utf-8")
        sides: tuple[list[FinishedRun], list[FinishedRun]] = ([], [])
        with (
            _worktree(project, found[0], folder / "before") as before,
            _worktree(project, found[1], folder / "after") as after,
        ):
            trees = (before, after)
            for number in range(rounds):
                # Who begins changes with each round.
                for side in (0, 1) if number % 2 == 0 else (1, 0):
                    say(f"round {number + 1} of {rounds}: {commits[side]}")
                    results = folder / f"results-{number}-{side}"
                    command = ["run", experiment, "--output", str(results), *arguments]
                    _run(trees[side], [*command, "--config", str(sizes)], commits[side])
                    sides[side].append(_measured(results, commits[side]))
        return runs_together(sides[0]), runs_together(sides[1])


def _measured(results: Path, commit: str) -> FinishedRun:
    try:
        return read_run(results)
    except ConfigurationError as error:
        raise MeasurementError(f"{commit}: {error}") from error


def _sizes(config: Path | None) -> str:
    if config is None:
        return "repetitions = 1\n"
    try:
        text = config.read_text(encoding="utf-8")
        said = "repetitions" in tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{config}: {error}") from error
    return text if said else f"repetitions = 1\n{text}"


def _commit(project: Path, name: str) -> str:
    if not (project / ".git").exists():
        raise UnavailableError(f"commits are compared in a clone of the repository: not {project}")
    try:
        return _git(
            project, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        )
    except MeasurementError as error:
        raise ConfigurationError(f"no commit {name!r}") from error


@contextmanager
def _worktree(project: Path, commit: str, folder: Path) -> Iterator[Path]:
    _git(project, "worktree", "add", "--quiet", "--detach", str(folder), commit)
    try:
        yield folder
    finally:
        _git(project, "worktree", "remove", "--force", str(folder))


def _git(project: Path, *arguments: str) -> str:
    try:
        answer = subprocess.run(  # noqa: S603
            ["git", "-C", str(project), *arguments],  # noqa: S607
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except OSError as error:
        raise UnavailableError(f"git does not start: {error}") from error
    if answer.returncode:
        raise MeasurementError(f"git {arguments[0]}: {' '.join(answer.stderr.split())}")
    return answer.stdout.strip()


def _run(tree: Path, arguments: Sequence[str], commit: str) -> None:
    """Run the experiments of a worktree in this environment."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", _START, *arguments],
        cwd=tree, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        _, errors = process.communicate()
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait(_END)
        raise
    # 1: something was not measured; the rest is compared.
    if process.returncode not in (0, 1):
        last = errors.strip().rpartition("\n")[2]
        raise MeasurementError(f"{commit}: {last or f'exit status {process.returncode}'}")
