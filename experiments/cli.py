"""``tpf-experiments``: list, run, report, publish."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from annotations.clock import SystemClock
from experiments.errors import ConfigurationError, ExperimentError
from experiments.harness.configuration import read_configuration
from experiments.harness.experiment import Experiment
from experiments.harness.publishing import publish as publish_report
from experiments.harness.report import write_report
from experiments.harness.runner import Runner, progress_bar
from experiments.registry import EXPERIMENTS, names

ALL = "all"
app = typer.Typer(
    name="tpf-experiments", add_completion=False, rich_markup_mode=None,
    no_args_is_help=True, help="Measure one architecture against another.",
)  # fmt: skip

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for results and report.")]


@app.command("list")
def list_() -> None:
    """Name the experiments, their questions and their sizes (full, quick)."""
    console = Console(highlight=False)
    for experiment in EXPERIMENTS:
        full, quick = experiment.settings(), experiment.settings.quick()
        console.print(experiment.name, style="bold")
        console.print(f"  {experiment.question}")
        for name in experiment.settings.__dataclass_fields__:
            console.print(f"  {name} = {getattr(full, name)!r}, {getattr(quick, name)!r}")


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="An experiment of the list, or all.")],
    output: Output,
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
    try:
        configuration = read_configuration(config, quick=quick, names=names())
        chosen = _chosen(name)
        output.mkdir(parents=True, exist_ok=True)
        with progress_bar() as progress:
            runner = Runner(output, configuration, SystemClock(), progress, resume=resume)
            for experiment in chosen:
                complete &= runner.run(experiment).complete
        report = write_report(output, EXPERIMENTS)
    except ExperimentError as error:
        typer.echo(f"tpf-experiments: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, ConfigurationError) else 1) from None
    except KeyboardInterrupt:
        write_report(output, EXPERIMENTS)
        typer.echo("tpf-experiments: interrupted; go on with --resume", err=True)
        raise typer.Exit(130) from None
    typer.echo(str(report))
    if not complete:
        typer.echo("tpf-experiments: not everything was measured; the report says what", err=True)
        raise typer.Exit(1)


@app.command()
def report(output: Output) -> None:
    """Write the report anew from the raw data."""
    try:
        typer.echo(str(write_report(output, EXPERIMENTS)))
    except ExperimentError as error:
        typer.echo(f"tpf-experiments: {error}", err=True)
        raise typer.Exit(1) from None


@app.command()
def publish(
    output: Output,
    to: Annotated[Path, typer.Option("--to", help="Folder for the published files.")],
    readme: Annotated[
        Path | None,
        typer.Option("--readme", exists=True, dir_okay=False, help="Mention it in this file."),
    ] = None,
) -> None:
    """Write page, summary and figures of the results for publishing, e.g. to docs/report."""
    try:
        typer.echo(str(publish_report(output, EXPERIMENTS, to, readme)))
    except ExperimentError as error:
        typer.echo(f"tpf-experiments: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, ConfigurationError) else 1) from None


def _chosen(name: str) -> tuple[Experiment, ...]:
    if name == ALL:
        return EXPERIMENTS
    for experiment in EXPERIMENTS:
        if experiment.name == name:
            return (experiment,)
    raise ConfigurationError(f"no experiment {name!r}: {', '.join((*names(), ALL))}")
