"""Quads that are static and live at the same time."""

from datetime import timedelta
from pathlib import Path

from annotations.labels import Expiration, Interval
from annotations.namespaces import RDF_TYPE, VOID, integer
from annotations.terms import DEFAULT_GRAPH, QuadPattern, Variable
from tests.support.served import HYDRA, NOON, TMP, Served, parse, quad

STATIC = [quad(f"t{n}", "platform", '"1"') for n in range(10)]
SOON = Expiration(NOON + timedelta(seconds=8))


def test_they_show_once_on_pages_of_any_size(tmp_path: Path) -> None:
    with Served(tmp_path, STATIC) as served:
        for n in (0, 3, 4, 9):
            served.publish((quad(f"t{n}", "platform", '"1"'), SOON))
        served.publish((quad("t5", "platform", '"2"'), SOON))
        for limit in range(1, 13):
            page = served.page(f"trains?limit={limit}")
            assert page.total == 11
            assert page.objects(TMP + "dynamicTriples") == ["5"]
            rows = served.fragment(f"trains?limit={limit}")
            assert sorted(rows) == sorted([*STATIC, quad("t5", "platform", '"2"')])
        served.clock.advance_to(SOON.end)
        assert sorted(served.fragment("trains")) == sorted(STATIC)


def test_the_catalogue_and_the_words_count_them_once(tmp_path: Path) -> None:
    kinds = [quad(f"t{n}", "a", "Train")._replace(predicate=RDF_TYPE) for n in range(4)]
    with Served(tmp_path, [*STATIC, *kinds[:3]]) as served:
        for n in (0, 3, 20):
            served.publish((quad(f"t{n}", "platform", '"1"'), SOON))
        served.publish(*[(kind, SOON) for kind in kinds[2:]])
        rows = parse(served.get("", "text/turtle").content, "text/turtle")
        counts = [row for row in rows if row.predicate == f"<{VOID}triples>"]
        told = {row.subject.rpartition("?predicate=")[2]: row.object for row in counts}
        assert sorted(told.values()) == sorted([integer(15), integer(11), integer(4)])
        words = served.get("query/words.json").json()
        platform = quad("t0", "platform", '"1"').predicate[1:-1]
        assert words["predicates"] == [[platform, 11], [RDF_TYPE[1:-1], 4]]
        assert [count for _, count in words["classes"]] == [4]


def test_history_and_snapshots(tmp_path: Path) -> None:
    with Served(tmp_path, STATIC, settings={"page_size": 4}) as served:
        served.publish(
            (quad("t1", "platform", '"1"'), Interval(NOON, NOON + timedelta(seconds=5))),
        )
        first = served.page("trains")
        following = first.objects(HYDRA + "next")[0]
        served.clock.advance_to(NOON + timedelta(seconds=6))
        assert served.page("trains").objects(TMP + "dynamicTriples") == ["0"]
        rows = first.data + served.fragment(following)
        assert sorted(rows) == sorted(STATIC)
        past = served.page("trains?at=2015-12-08T12:00:01Z")
        assert (past.total, past.objects(TMP + "dynamicTriples")) == (10, ["1"])


def test_restarted_servers_know_them(tmp_path: Path) -> None:
    with Served(tmp_path, STATIC) as served:
        served.publish((quad("t1", "platform", '"1"'), SOON))
    with Served(tmp_path, STATIC, live=True) as served:
        assert served.page("trains").total == 10


def test_positions_follow_the_order_of_the_pages(tmp_path: Path) -> None:
    rows = [quad(a, b, c, *g) for a in "xyz" for b in "pq" for c in "xz" for g in ((), ("g",))]
    with Served(tmp_path, rows) as served:
        static = served.dataset.static
        assert static is not None
        for text in ("????", "xq??", "?p?d", "??zg", "?pxg", "s?s?", "sps?"):
            names = iter("abcd")
            terms = [
                Variable(f"?{next(names)}") if letter == "?"
                else Variable("?s") if letter == "s"
                else DEFAULT_GRAPH if letter == "d"
                else quad(letter, "p", "o").subject
                for letter in text
            ]  # fmt: skip
            pattern = QuadPattern(*terms)
            found = static.quads(pattern, 0, 100)
            assert found
            assert [static.position(pattern, row) for row in found] == list(range(len(found)))
