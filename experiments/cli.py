"""``tpf-experiments``: list, run, report, publish, compare."""

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from annotations.clock import SystemClock
from experiments.errors import ConfigurationError, ExperimentError
from experiments.harness.comparison import (
    RunComparison,
    compare_runs,
    measure_alternately,
    read_run,
)
from experiments.harness.machine import PROJECT
from experiments.harness.publishing import publish_report, unpack_report
from experiments.harness.report import duration, write_report
from experiments.harness.results import Experiment
from experiments.harness.runner import Runner, progress_bar, read_run_configuration
from experiments.studies.adaptivity import Adaptivity
from experiments.studies.annotation_methods import AnnotationMethods
from experiments.studies.citybench import CityBenchQueries
from experiments.studies.conference import ConferenceQueries
from experiments.studies.cost_model import CostModel
from experiments.studies.csparql import PeriodicQueries
from experiments.studies.fragments import Fragments
from experiments.studies.load import Load
from experiments.studies.open_track import OpenTrack
from experiments.studies.server_vs_client import ServerVsClient
from experiments.studies.taxi import TaxiQueries
from tpf_client.app.printing import OutputConsole

# The experiments, in the order in which they run and are reported: what matters most first.

EXPERIMENTS: tuple[Experiment, ...] = (
    ServerVsClient(),
    CostModel(),
    Fragments(),
    AnnotationMethods(),
    ConferenceQueries(),
    TaxiQueries(),
    PeriodicQueries(),
    CityBenchQueries(),
    OpenTrack(),
    Load(),
    Adaptivity(),
)
STUDY_MINUTES: Mapping[str, float] = {
    "server-vs-client": 22, "cost-model": 0.1, "fragments": 9, "annotation-methods": 10,
    "conference": 6, "taxi": 8, "csparql": 9, "citybench": 17, "open-track": 25,
    "load": 33, "adaptivity": 1,
}  # fmt: skip
"""About what a full run of each takes, on two cores with nothing else to do."""


def names() -> tuple[str, ...]:
    """List the names of the experiments."""
    return tuple(experiment.name for experiment in EXPERIMENTS)


ALL = "all"
app = typer.Typer(
    name="tpf-experiments", add_completion=False, rich_markup_mode=None,
    no_args_is_help=True, help="Measure one architecture against another.",
)  # fmt: skip

_Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for results and report.")]


@contextmanager
def _errors() -> Iterator[None]:
    """Turn an error into a line and an exit status: 2 for wrong use, otherwise 1."""
    try:
        yield
    except ExperimentError as error:
        typer.echo(f"tpf-experiments: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, ConfigurationError) else 1) from None


@app.command("list")
def list_() -> None:
    """Name the experiments, their questions and their sizes (full, quick)."""
    console = OutputConsole(highlight=False)
    for experiment in EXPERIMENTS:
        full, quick = experiment.settings(), experiment.settings.quick()
        took = duration(60_000 * STUDY_MINUTES[experiment.name])
        console.print(f"[bold]{experiment.name}[/bold] (a full run: about {took})")
        console.print(f"  {experiment.question}")
        for name in experiment.settings.__dataclass_fields__:
            console.print(f"  {name} = {getattr(full, name)!r}, {getattr(quick, name)!r}")
    console.print(
        f"All of it: about {sum(STUDY_MINUTES.values()) / 60:.1f} hours on two quiet cores."
    )


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="An experiment of the list, or all.")],
    output: _Output,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, for a check.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the measurements that are there.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option("--config", exists=True, dir_okay=False, help="TOML file with settings."),
    ] = None,
) -> None:
    """Measure, and write raw data, figures and a report. Status 1 where something is missing."""
    complete = True
    # As an interrupt: what was started is ended, and the report says what there is.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _errors():
        configuration = read_run_configuration(config, quick=quick, names=names())
        chosen = _chosen(name)
        output.mkdir(parents=True, exist_ok=True)
        try:
            with progress_bar() as progress:
                runner = Runner(output, configuration, SystemClock(), progress, resume=resume)
                for experiment in chosen:
                    complete &= _run(runner, experiment, progress)
            report = write_report(output, EXPERIMENTS)
        except KeyboardInterrupt:
            write_report(output, EXPERIMENTS)
            typer.echo("tpf-experiments: interrupted; go on with --resume", err=True)
            raise typer.Exit(130) from None
    typer.echo(str(report))
    if not complete:
        typer.echo("tpf-experiments: not everything was measured; the report says what", err=True)
        raise typer.Exit(1)


def _run(runner: Runner, experiment: Experiment, progress: Progress) -> bool:
    try:
        return runner.run(experiment).complete
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - a run goes on, whatever it is
        text = f"{experiment.name}: {type(error).__name__}: {error}"
        progress.console.print(text, markup=False, highlight=False)
        return False


@app.command()
def report(output: _Output) -> None:
    """Write the report anew from the raw data."""
    with _errors():
        typer.echo(str(write_report(output, EXPERIMENTS)))


@app.command()
def publish(
    output: _Output,
    to: Annotated[Path, typer.Option("--to", help="Folder for the published files.")],
    readme: Annotated[
        Path | None,
        typer.Option("--readme", exists=True, dir_okay=False, help="Mention it in this file."),
    ] = None,
) -> None:
    """Write page, summary and figures of the results for publishing, e.g. to docs/report."""
    with _errors():
        typer.echo(str(publish_report(output, EXPERIMENTS, to, readme)))


@app.command()
def unpack(
    published: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="Folder of a published report.")
    ],
    output: _Output,
) -> None:
    """Bring back the results of a published report, for report, compare or run --resume."""
    with _errors():
        typer.echo(", ".join(unpack_report(published, output)))


@app.command()
def compare(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Two folders of results: before and after.")
    ] = None,
    commits: Annotated[
        tuple[str, str] | None,
        typer.Option("--commits", metavar="BASE HEAD", help="Measure two commits in turn instead."),
    ] = None,
    experiment: Annotated[
        str, typer.Option("--experiment", help="What is measured at the commits.")
    ] = "conference",
    rounds: Annotated[
        int, typer.Option("--rounds", min=2, help="How often each commit is measured.")
    ] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, at commits.")] = False,
    config: Annotated[
        Path | None,
        typer.Option("--config", exists=True, dir_okay=False, help="Sizes, at commits."),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option("--column", help="Only this column; may be repeated.")
    ] = None,
    at_most: Annotated[
        float | None,
        typer.Option("--at-most", help="Fail where something got worse by more, say 1.03."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Compare two runs, or two commits. Status 1 where something got worse than allowed."""
    with _errors():
        if at_most is not None and not at_most >= 1:
            raise ConfigurationError(f"--at-most is a factor from 1 on, not {at_most:g}")
        if commits is None:
            before, after = _two(runs or [], config=config, quick=quick)
            sides = read_run(before), read_run(after)
        else:
            if runs:
                raise ConfigurationError("either two folders or --commits, not both")
            # Before anything is measured for minutes.
            columns = {value for each in _chosen(experiment) for value in each.values}
            if unknown := [name for name in column or () if name not in columns]:
                raise ConfigurationError(
                    f"--column: {experiment} measures no {unknown[0]!r}, "
                    f"but {', '.join(sorted(columns))}"
                )
            further = ["--quick"] if quick else []
            sides = measure_alternately(
                PROJECT, commits, experiment, rounds, further, config,
                lambda line: typer.echo(line, err=True),
            )  # fmt: skip
        comparison = compare_runs(*sides, column or ())
    typer.echo(
        json.dumps(comparison.as_json(at_most), indent=1)
        if as_json
        else comparison.as_text(at_most)
    )
    if at_most is not None and (failure := _failure(comparison, at_most)):
        typer.echo(f"tpf-experiments: {failure}", err=True)
        raise typer.Exit(1)


def _two(runs: list[Path], *, config: Path | None, quick: bool) -> tuple[Path, Path]:
    if len(runs) != 2:
        raise ConfigurationError(f"two folders are compared, not {len(runs)}")
    if quick or config is not None:
        raise ConfigurationError("--quick and --config are for --commits")
    return runs[0], runs[1]


def _failure(comparison: RunComparison, limit: float) -> str:
    if worse := comparison.worse(limit):
        return (
            f"{len(worse)} of {comparison.judged(limit)} figures got worse by more than {limit:g}"
        )
    if not comparison.judged(limit):
        return "nothing can be judged: every figure was measured only once"
    return ""


def _chosen(name: str) -> tuple[Experiment, ...]:
    if name == ALL:
        return EXPERIMENTS
    for experiment in EXPERIMENTS:
        if experiment.name == name:
            return (experiment,)
    raise ConfigurationError(f"no experiment {name!r}: {', '.join((*names(), ALL))}")
