"""What a text in RSP-QL says."""

from dataclasses import dataclass

from annotations.terms import TermOrVariable
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery
from tpf_server.continuous.csparql.windows import Instants
from tpf_server.continuous.rspql.instants import report_instants
from tpf_server.continuous.rspql.reports import (
    WINDOW_CLOSE,
    ReportPolicy,
    StreamOperator,
    TickPolicy,
)


@dataclass(frozen=True, slots=True)
class RspqlQuery(CsparqlQuery):
    """A query of RSP-QL.

    Args:
        operator: what is streamed of its answers.
        report: when it answers.
        tick: where it is looked for these instants.
        graphs: of the triples of the template, by their places; ``None``: of no graph.
    """

    operator: StreamOperator = "RSTREAM"
    report: ReportPolicy = WINDOW_CLOSE
    tick: TickPolicy = "time"
    graphs: tuple[TermOrVariable | None, ...] = ()

    @property
    def instants(self) -> Instants:
        """The instants that time alone says; none where elements say them, too."""
        if self.tick != "time" or not self.report.timing:
            return Instants(())
        return report_instants(self.report, [clause.window for clause in self.streams])

    @property
    def said(self) -> str:
        """Its policies, in a line."""
        return f"{self.operator}, report: {self.report}, tick: {self.tick}"

    @property
    def continuous(self) -> bool:
        """Whether anything says when to evaluate it again."""
        return True
