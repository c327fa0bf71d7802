"""Streams of two markets in files, and queries over them on Spark."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from annotations.terms import Term
from experiments.workloads.market import EXCHANGE, MARKETS, transactions
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.csparql.rules import Rule
from tpf_server.continuous.engine.static.store_graph import StoreGraph


class SparkMarket:
    """Streams in files, and a Spark that reads them.

    Args:
        session: Spark.
        java: its process.
        work: a directory.
        events: triples that a replay has.
        static: the countries of brokers.
        size: how many brokers there are.
    """

    def __init__(
        self,
        session: Any,
        java: psutil.Process,
        work: Path,
        events: int,
        static: Sequence[StoreGraph],
        size: int,
    ) -> None:
        self.static = static
        self.size = size
        self.session = session
        self.java = java
        self.work = work
        self.events = events
        self.number = 0
        self.directories: dict[str, Path] = {}

    def write(self, seed: int, events: int) -> None:
        """Make the streams anew."""
        from tpf_server.continuous.csparql.spark.execution import punctuate

        self.number += 1
        self.directories = {
            m: self.work / f"market{self.number}-{n}" for n, m in enumerate(MARKETS)
        }
        lines: tuple[list[str], list[str]] = ([], [])
        end = 0
        for market, at, triples in transactions(seed, self.size, events // 2):
            lines[market].extend(f"{at}\t" + "\t".join(each) + "\n" for each in triples)
            end = at
        for number, directory in enumerate(self.directories.values()):
            directory.mkdir(parents=True)
            (directory / "elements.tsv").write_text("".join(lines[number]))
            punctuate(directory, end // 1000 * 1000)

    def replay(self, text: str, rules: tuple[Rule, ...]) -> int:
        """Run a query over them; how many rows its answers have."""
        from tpf_server.continuous.csparql.spark.execution import SparkExecution

        self.number += 1
        engine = CsparqlEngine()
        for graph in self.static:
            engine.attach(graph)
        predicates = {
            Term(f"<{name}>"): frozenset(Term(f"<{EXCHANGE}{each}>") for each in ("does", "with"))
            for name in MARKETS
        }
        execution = SparkExecution(
            self.session, text, engine.static, self.directories, self.work / f"out{self.number}",
            rules=rules, predicates=predicates,
        )  # fmt: skip
        execution.replay()
        return sum(len(answer.rows) for answer in execution.results.read())
