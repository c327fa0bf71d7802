"""Load RDF into a static store in one process, with every distinct term in memory."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile

from loaders.errors import OutputError
from loaders.places import RemoteFile
from loaders.progress import Report, Silent
from loaders.rdf.entailment import Entailment, Regime
from loaders.rdf.pieces import PieceReader, cut
from loaders.rdf.scan import RejectLog
from loaders.rdf.staging import staging
from loaders.rdf.summary import (
    RdfLoad,
    RdfSummary,
    check_not_all_rejected,
    collect_rejects,
    summary_of,
)
from tpf_server.errors import StoreError
from tpf_server.store.static.indexing import QuadIndexer
from tpf_server.store.static.rdf_files import merge_prefixes


def load_rdf_local(
    files: Sequence[Path | RemoteFile],
    store: Path,
    job: RdfLoad,
    *,
    report: Report | None = None,
    entail: Regime | None = None,
) -> RdfSummary:
    """Load RDF files in one process, with the triples that follow by the rules of `entail`."""
    report = report or Silent()
    entailment = entail and Entailment(entail)
    indexer = QuadIndexer()
    known = [job.prefixes]
    with staging(store), TemporaryFile() as aside:
        pieces = cut(files)
        report.stage("reading", len(pieces))
        quads = 0
        log = RejectLog(aside, job.strict)
        for piece in pieces:
            reader = PieceReader(piece, log.reject)
            found = reader.quads()
            quads += indexer.add(entailment.noting(found) if entailment else found)
            known.append(reader.prefixes)
            report.done(piece.number + 1)
        first = collect_rejects(log.blocks(), job.rejects)
        check_not_all_rejected(quads, log.count, first)
        if entailment:
            report.stage("deriving what follows")
            indexer.add(entailment.derived())
        report.stage("writing")
        try:
            manifest = indexer.write(
                store, created=job.created, prefixes=merge_prefixes(known), source=job.source
            )
        except StoreError as error:
            raise OutputError(str(error)) from error
        return summary_of(store, manifest, log.count, first)
