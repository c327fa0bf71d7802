"""Answers as files: for each micro-batch one, that is there as a whole or not at all.

``results/<batch>.ndjson`` has a line for each instant that the micro-batch closed, answers of
nothing included: ``{"at": …, "form": …, "variables": […], "rows": [[…], …]}``. When Spark repeats a
micro-batch after a failure the file is written again with the same content, so nothing is lost and
nothing is there twice. For a registered stream ``elements/<batch>.tsv`` has its triples with their
timestamps and, at its end, the timestamp up to which everything has come, so that another query can
read it as its stream.
"""

import json
from collections.abc import Iterable, Iterator

from annotations.terms import Term, Variable
from tpf_server.continuous.csparql.answers import PeriodicAnswer
from tpf_spark.folders import Folder


class ResultFiles:
    """The answers of one query.

    Args:
        folder: where the files are.
        stream: whether elements of a stream are written too.
    """

    def __init__(self, folder: Folder, *, stream: bool = False) -> None:
        self._results = folder.inner("results")
        self._elements = folder.inner("elements") if stream else None

    def make(self) -> None:
        """Make the folders, which others may read before anything is in them."""
        self._results.make()
        if self._elements is not None:
            self._elements.make()

    def write(self, batch: int, answers: Iterable[PeriodicAnswer]) -> None:
        """Write the answers of a micro-batch; when this returns they are on the disk."""
        written = list(answers)
        if self._elements is not None:
            lines = [
                f"{answer.at}\t" + "\t".join(str(term) for term in row) + "\n"
                for answer in written
                for row in answer.rows
            ]
            lines += [f"{answer.at}\n" for answer in written[-1:]]
            self._elements.write(f"{batch:09d}.tsv", lines)
        self._results.write(f"{batch:09d}.ndjson", map(_line, written))

    def last_before(self, batch: int) -> int | None:
        """The last instant that earlier micro-batches answered."""
        for name in reversed(self._files()):
            if int(name.partition(".")[0]) < batch:
                lines = self._lines(name)
                if lines:
                    return int(json.loads(lines[-1])["at"])
        return None

    def read(self, query: str = "") -> Iterator[PeriodicAnswer]:
        """All answers, in the order of their instants."""
        for name in self._files():
            for line in self._lines(name):
                value = json.loads(line)
                yield PeriodicAnswer(
                    query,
                    value["at"],
                    value["form"],
                    tuple(Variable(name) for name in value["variables"]),
                    tuple(
                        tuple(None if each is None else Term(each) for each in row)
                        for row in value["rows"]
                    ),
                )

    def _lines(self, name: str) -> list[str]:
        # Not `splitlines`: literals may have what that takes for line ends, as U+2028.
        return self._results.read(name).split("\n")[:-1]

    def _files(self) -> list[str]:
        return [name for name in self._results.names() if name.endswith(".ndjson")]


def _line(answer: PeriodicAnswer) -> str:
    value = {
        "at": answer.at,
        "form": answer.form,
        "variables": answer.variables,
        "rows": answer.rows,
    }
    return json.dumps(value, ensure_ascii=False) + "\n"
