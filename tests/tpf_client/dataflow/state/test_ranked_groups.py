"""Ranked groups, in Python and in C, against counting the window anew after each row."""

import importlib.util
import os
import random
import subprocess
import sys
from array import array
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tpf_client.dataflow.kernels import compiled_groups
from tpf_client.dataflow.state.ranked_groups import RankedGroups, Ranking
from tpf_client.sparql.expressions.inlined import decimal_of, inline_decimal, inline_integer

ROOT = Path(__file__).parents[4]
EXAMPLES = 40


@pytest.fixture(params=["python", "compiled"])
def made(request):
    if request.param == "python":
        return RankedGroups
    found = compiled_groups()
    if found is None:
        pytest.skip("built without a compiler")
    return found


class Column(array):
    """A column that both take."""


def column(values):
    return Column("q", values)


def number(cell):
    return Decimal(cell >> 3) if cell & 7 == 1 else decimal_of(cell)


def best(window, ranking):
    """The rows that are shown, by definition."""
    sizes = Counter(key for _, _, key in window if key is not None)
    rows = [(*key, size) for key, size in sizes.items()]

    def rank(row):
        by = [(row[p] if p == ranking.keys else number(row[p]), d) for p, d in ranking.order]
        return [-value if d else value for value, d in by], [row[p] for p in ranking.ties]

    return sorted(rows, key=rank)[ranking.offset : ranking.wanted]


def some_ranking(chance):
    keys = chance.choice((1, 1, 2, 3))
    order = [(keys, True), *[(place, chance.random() < 0.5) for place in range(keys)]]
    chance.shuffle(order)
    ties = [*range(keys + 1)]
    chance.shuffle(ties)
    offset = chance.choice((0, 0, 1, 5))
    return Ranking(
        keys=keys,
        order=tuple(order[: chance.randint(1, keys + 1)]),
        ties=tuple(ties),
        offset=offset,
        wanted=offset + chance.choice((1, 3, 10, 40)),
        width=chance.choice((0, 3, 20, 300)),
        apart=chance.random() < 0.5,
    )


def some_cells(chance):
    """Integers and decimals, some of them of the same value, and some large."""
    return chance.choice(
        (
            *(inline_integer(n) for n in (-3, 0, 1, 2, 2**59)),
            *(inline_decimal(Decimal(n)) for n in ("1", "2.5", "-3.25", "0.000001", "99999999999")),
            inline_integer(chance.randrange(200)),
        )
    )


def check(make, seed, rows=160):
    """Play random rows, and compare with the definition after each."""
    chance = random.Random(seed)
    ranking = some_ranking(chance)
    state = make(ranking)
    window, at, shown = [], 0, []
    steps = chance.choice(((0, 0, 1), (0, 1, 5), (0, 30)))
    while rows > 0:
        size = min(rows, chance.choice((1, 7, 50)))
        rows -= size
        times = [at := at + chance.choice(steps) for _ in range(size)]
        subjects = [chance.randrange(-(10**6), 10**6) for _ in range(size)]
        keys = [[some_cells(chance) for _ in range(ranking.keys)] for _ in range(size)]
        wanted = [chance.random() < 0.9 for _ in range(size)]
        columns = [column(each) for each in zip(*keys, strict=True)]
        batch = state.batch(column(times), column(subjects), columns, column(wanted))
        done = 0
        while done < size:
            before = done
            done = state.run(batch, done)
            for row in range(before, done):
                left = [each for each in window if each[0] >= times[row] - ranking.width]
                key = tuple(keys[row]) if wanted[row] else None
                then = best(left, ranking)
                window = [*left, (times[row], subjects[row], key)]
                now = best(window, ranking)
                if row < done - 1 or not state.changed:
                    assert now == shown
                    assert not ranking.apart or then == shown
                elif ranking.apart:
                    assert then == (shown if state.before() is None else state.before())
                shown = now
            assert state.shown() == shown
            assert len(state) == len(window)
            assert state.groups == len({key for _, _, key in window if key is not None})
            if state.refused:
                assert any(subjects[done] == subject for _, subject, _ in window)
                # Somebody else takes it; here it goes on without.
                for each in (times, subjects, keys, wanted):
                    del each[done]
                size -= 1
                columns = [column(each) for each in zip(*keys, strict=True)]
                columns = columns or [column([]) for _ in range(ranking.keys)]
                batch = state.batch(column(times), column(subjects), columns, column(wanted))


def test_they_are_the_window_counted_anew(made):
    for seed in range(EXAMPLES):
        check(made, seed)


def test_a_subject_that_is_there_is_refused_and_nothing_happens(made):
    ranking = Ranking(1, ((1, True),), (0, 1), 0, 2, 5, apart=False)
    state = made(ranking)
    one = inline_integer(1)
    rows = column([0, 9, 9]), column([7, 7, 8]), [column([one] * 3)], column([1, 1, 1])
    batch = state.batch(*rows)
    assert state.run(batch, 0, True) == 1
    assert (state.refused, state.changed, len(state)) == (True, False, 1)
    assert state.shown() == [(one, 1)]
    assert state.run(batch, 2) == 3
    assert not state.refused
    assert len(state) == 1


def test_wrong_use_of_the_compiled_one_is_an_error():
    make = compiled_groups()
    if make is None:
        pytest.skip("built without a compiler")
    right = Ranking(1, ((1, True),), (0, 1), 0, 2, 5, apart=False)
    wrongs: list[Any] = [
        right._replace(keys=0),
        right._replace(keys=65),
        right._replace(order=((2, True),)),
        right._replace(ties=(-1,)),
        right._replace(wanted=0),
        right._replace(width=-1),
        right._replace(width=2**63),
        (*right[:1], (1,), *right[2:]),
        (),
    ]
    for wrong in wrongs:
        with pytest.raises((ValueError, TypeError, OverflowError)):
            make(wrong)
    state = make(right)
    short, long = column([1]), column([1, 2])
    for batch in (
        (short, short, short),
        (short, short, long, short),
        (short, short, array("i", [1]), short),
        (short, short, array("d", [1]), short),
        (short, short, [1], short),
        (short, short, None, short),
        [short, short, short, short],
    ):
        with pytest.raises((ValueError, TypeError, BufferError)):
            state.run(batch, 0)
    for start in (-1, 2):
        with pytest.raises(ValueError, match="no such row"):
            state.run((short,) * 4, start)
    assert len(state) == 0
    assert state.run((short,) * 4, 0) == 1


def test_it_is_clean_under_sanitizers(tmp_path):
    def found(name):
        path = subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        return path if os.path.isabs(path) and Path(path).exists() else None

    try:
        libraries = [found("libasan.so"), found("libubsan.so")]
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no gcc")
    if None in libraries:
        pytest.skip("gcc has no sanitizers")
    options = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"]
    build = [sys.executable, ROOT / "hatch_build.py", tmp_path, *options]
    subprocess.run(build, check=True, timeout=240, env={**os.environ, "CC": "gcc"})
    played = subprocess.run(
        [sys.executable, __file__, tmp_path],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
        env={
            **os.environ,
            "LD_PRELOAD": " ".join(map(str, libraries)),
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONMALLOC": "malloc",
            "PYTHONPATH": str(ROOT),
        },
    )
    assert (played.returncode, played.stdout) == (0, "clean\n"), played.stderr[-3000:]


def play(directory):
    """Random rows for the extension in a directory."""
    (file,) = Path(directory).glob("*.so")
    spec: Any = importlib.util.spec_from_file_location("_ranked_groups", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for seed in range(8):
        check(module.RankedGroups, seed)
    print("clean")  # noqa: T201


if __name__ == "__main__":
    play(sys.argv[1])
