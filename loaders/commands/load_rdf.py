"""``tpf-load rdf``."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from annotations.clock import SystemClock
from loaders.commands import options
from loaders.commands.options import grouped
from loaders.places import without_secrets
from loaders.rdf.build import load_rdf_spark
from loaders.rdf.entailment import Regime
from loaders.rdf.local import load_rdf_local
from loaders.rdf.parting import StoreOutput
from loaders.rdf.pieces import input_files
from loaders.rdf.summary import RdfSummary
from loaders.sources.base import size_of


@grouped
def rdf(
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT...", help="Files, folders or patterns; or URLs.")
    ],
    output: options.OutputOption,
    job: options.LoadJob,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at what is malformed.")] = False,
    rejects: Annotated[
        Path | None,
        typer.Option("--rejects", help="Directory for what is malformed; default: OUTPUT.rejects."),
    ] = None,
    entail: Annotated[
        Regime | None,
        typer.Option("--entail", help="The store has what follows by these rules, too."),
    ] = None,
) -> None:
    """RDF files into a store: .nt .nq .ttl .trig .n3 .rdf .owl .jsonld (also .gz …), and .hdt."""
    if entail is not None:
        if job.engine is options.LoadEngine.SPARK:
            raise typer.BadParameter("--entail is computed by one process, not by Spark")
        job = replace(job, engine=options.LoadEngine.LOCAL)
    created = SystemClock().now()
    with StoreOutput(output, job.replace, created) as place:
        files = input_files(inputs)
        aside = rejects or Path(f"{place.beside}.rejects")
        given = _RdfOptions(
            created=created, rejects=aside / "rejects.ndjson", strict=strict,
            source=" ".join(map(without_secrets, inputs)),
        )  # fmt: skip

        def told(summary: RdfSummary) -> list[str]:
            place.put(summary)
            return options.load_lines(summary, output, aside)

        job.run(
            "rdf",
            size_of(files),
            lambda context, report: told(
                load_rdf_spark(
                    files, place.path, context, report=report, parts=place.parts, **given
                )
            ),
            lambda report: told(
                load_rdf_local(files, place.path, report=report, entail=entail, **given)
            ),
        )


class _RdfOptions(TypedDict):
    created: datetime
    rejects: Path
    strict: bool
    source: str
