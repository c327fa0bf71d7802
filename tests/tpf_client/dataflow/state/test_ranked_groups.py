"""Ranked groups, in Python and C, against recounting the window after each row."""

import importlib.util
import os
import random
import subprocess
import sys
from array import array
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.support.ranked_groups import RankedGroups
from tpf_client.dataflow.kernels import compiled_groups
from tpf_client.dataflow.state.ranked_groups import (
    LEAST,
    MEDIAN,
    MOST,
    MOST_SIZE,
    NONE,
    PARTS,
    SUM,
    WITH_ROW,
    Branch,
    By,
    Ranking,
)
from tpf_client.sparql.expressions.inlined import decimal_of, inline_decimal, inline_integer

ROOT = Path(__file__).parents[4]
EXAMPLES = 20


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


INSTANTS = 10**19


def number_of(cell):
    if cell & 7 == 3:
        # Behind all numbers.
        return Fraction((cell >> 3) + INSTANTS)
    return Fraction(cell >> 3) if cell & 7 == 1 else Fraction(decimal_of(cell))


def cut_off(value, digits=18):
    """Truncate a fraction to a decimal with so many digits."""
    whole = int(abs(value) * 10**digits)
    return Fraction(whole if value >= 0 else -whole, 10**digits)


def parts_of(kind, cells):
    """Return the shown values of numbers, and the sort value."""
    if kind == SUM:
        value = sum((number_of(each) for each in cells), Fraction(0))
        whole = int(value * 10**18)
        low, high = whole & (1 << 64) - 1, whole >> 64
        low -= (low >> 63) << 64
        return (low, high, sum(each & 7 != 1 for each in cells)), value
    if not cells:
        return (0,) * PARTS, None
    ordered = sorted(cells, key=lambda each: (number_of(each), each))
    if kind == MEDIAN:
        low, high = ordered[(len(cells) - 1) // 2], ordered[len(cells) // 2]
        return (low, high, 0), (number_of(low) + number_of(high)) / 2
    end = ordered[0 if kind == LEAST else -1]
    return (end, 0, 0), number_of(end)


def places_of(ranking):
    """Return the columns of size and numbers for each branch."""
    found, place = [], ranking.keys
    for branch in ranking.branches:
        numbers = [place + 1 + PARTS * number for number in range(len(branch.numbers))]
        found.append((place, numbers))
        place += branch.shown
    return found


def best(window, ranking, at):
    """The rows that are shown, by definition."""
    groups = {}
    for number, branch in enumerate(ranking.branches):
        gate = branch.other_width != NONE
        others = {}
        for when, _, parts in window if gate else ():
            _, there, _, theirs = parts[number][2]
            if when >= at - branch.other_width:
                others[there] = max(theirs, others.get(there, theirs))
        for when, _, parts in window:
            key, cells, met = parts[number]
            if key is None or when < at - branch.width:
                continue
            sizes = groups.setdefault(key, [[] for _ in ranking.branches])
            if gate and (others.get(met[0], met[2]) > met[2]) == branch.negated:
                continue
            sizes[number].append(cells)
    rows, values = [], {}
    for key, parts in groups.items():
        if all(b.least <= len(p) <= b.most for b, p in zip(ranking.branches, parts, strict=True)):
            row, by = [*key], dict(enumerate(map(number_of, key)))
            for branch, part in zip(ranking.branches, parts, strict=True):
                by[len(row)] = Fraction(len(part))
                row.append(len(part))
                for number, kind in enumerate(branch.numbers):
                    shown, by[len(row)] = parts_of(kind, [cells[number] for cells in part])
                    row += shown
            rows.append(tuple(row))
            values[rows[-1]] = by

    def value(row, place, over):
        found = values[row][place]
        return found if over == NONE else cut_off(found / row[over])

    def rank(row):
        by = [(value(row, by.place, by.over), by.descending) for by in ranking.order]
        return [-value if d else value for value, d in by], [row[p] for p in ranking.ties]

    return sorted(rows, key=rank)[ranking.offset : ranking.wanted]


def some_branch(chance):
    kind = chance.choice(("count", "numbers", "numbers", "gate"))
    some = (SUM,) if kind == "gate" else (MEDIAN, SUM, LEAST, MOST)
    most = {"count": 0, "numbers": 3, "gate": 1}[kind]
    return Branch(
        width=chance.choice((0, 3, 20, 300)),
        least=chance.choice((1, 1, 1, 2)),
        most=chance.choice((MOST_SIZE, MOST_SIZE, 3)),
        numbers=tuple([chance.choice(some) for _ in range(chance.randint(0, most))]),
        other_width=chance.choice((0, 3, 20, 300)) if kind == "gate" else NONE,
        negated=chance.random() < 0.6,
    )


def some_ranking(chance):
    keys = chance.choice((1, 1, 2, 3))
    branches = tuple(some_branch(chance) for _ in range(chance.choice((1, 1, 2, 2, 3))))
    known = places_of(Ranking(keys, branches, (), (), 0, 1, apart=False, ticks=False))
    sizes = [size for size, _ in known]
    places = [*range(keys), *sizes, *(place for _, numbers in known for place in numbers)]
    order = [
        By(place, chance.choice((NONE, NONE, *sizes)), chance.random() < 0.5) for place in places
    ]
    chance.shuffle(order)
    ties = [*range(keys), *sizes]
    chance.shuffle(ties)
    offset = chance.choice((0, 0, 1, 5))
    return Ranking(
        keys=keys,
        branches=branches,
        order=tuple(order[: chance.randint(1, len(order))]),
        ties=tuple(ties),
        offset=offset,
        wanted=offset + chance.choice((1, 3, 10, 40)),
        apart=chance.random() < 0.5,
        ticks=chance.random() < 0.5,
    )


def some_cells(chance, kind=MEDIAN):
    """Integers, decimals of equal or large values, and instants."""
    if kind in (LEAST, MOST) and chance.random() < 0.3:
        return chance.choice((-(10**16), 0, 10**15, 253402300799 * 10**6)) << 3 | 3
    return chance.choice(
        (
            *(inline_integer(n) for n in (-3, 0, 1, 2, 2**59)),
            *(inline_decimal(Decimal(n)) for n in ("1", "2.5", "-3.25", "0.000001", "99999999999")),
            inline_integer(chance.randrange(chance.choice((4, 200)))),
        )
    )


def some_parts(chance, ranking):
    """A row in each branch: its key, its number, and its values beyond the gate."""
    own = tuple(some_cells(chance) for _ in range(ranking.keys))
    parts = []
    for branch in ranking.branches:
        key = own if chance.random() < 0.7 else tuple(some_cells(chance) for _ in own)
        met = [chance.randrange(4), chance.randrange(4), *[chance.choice((-9, 0, 7, 8))] * 2]
        met[3] += chance.randrange(3) - 1
        cells = tuple([some_cells(chance, kind) for kind in branch.numbers])
        parts.append((key if chance.random() < 0.9 else None, cells, tuple(met)))
    return parts


def columns_of(ranking, times, subjects, rows):
    """Columns as a state takes them."""
    found = [times, subjects]
    for number, branch in enumerate(ranking.branches):
        parts = [row[number] for row in rows]
        nothing = (0,) * ranking.keys
        found += [[(key or nothing)[n] for key, _, _ in parts] for n in range(ranking.keys)]
        found.append([key is not None for key, _, _ in parts])
        found += [[cells[n] for _, cells, _ in parts] for n in range(len(branch.numbers))]
        if branch.other_width != NONE:
            found += [[met[n] for _, _, met in parts] for n in range(4)]
    return [column(each) for each in found]


def check(make, seed, rows=160):
    """Play random rows, and compare with the definition after each."""
    chance = random.Random(seed)
    ranking = some_ranking(chance)
    width = max(max(each.width, each.other_width) for each in ranking.branches)
    state = make(ranking)
    window, at, shown = [], 0, []
    widths = {each for branch in ranking.branches for each in (branch.width, branch.other_width)}
    steps = chance.choice(((0, 0, 1), (0, 1, 5), (0, 30)))
    passed = 0

    def same_until(instant):
        """Between rows nothing changes that is not told."""
        gone = {each[0] + of + 1 for each in window for of in widths} if ranking.ticks else ()
        for each in gone:
            assert not passed < each < instant or best(window, ranking, each) == shown

    while rows > 0:
        size = min(rows, chance.choice((1, 7, 50)))
        rows -= size
        times = [at := at + chance.choice(steps) for _ in range(size)]
        subjects = [chance.randrange(-(10**6), 10**6) for _ in range(size)]
        parts = [some_parts(chance, ranking) for _ in range(size)]
        batch = state.batch(columns_of(ranking, times, subjects, parts))
        done = 0
        while done < size:
            before = done
            done = state.run(batch, done, chance.choice((size, min(size, done + 3))))
            for row in range(before, done):
                now = times[row]
                same_until(now)
                passed = now
                window = [each for each in window if each[0] >= now - width]
                then = best(window, ranking, now)
                window.append((now, subjects[row], parts[row]))
                found = best(window, ranking, now)
                if row < done - 1 or not state.changed or state.passed != WITH_ROW:
                    assert found == shown
                    assert not ranking.apart or then == shown
                elif ranking.apart:
                    assert then == (shown if state.before() is None else state.before())
                shown = found
            if state.passed != WITH_ROW:
                assert ranking.ticks
                assert state.changed
                assert passed < state.passed < times[done]
                same_until(state.passed)
                passed = state.passed
                window = [each for each in window if each[0] >= passed - width]
                shown = best(window, ranking, passed)
            assert state.shown() == shown
            assert len(state) == len(window)
            assert sys.getsizeof(state) > 0
            if state.refused:
                assert any(subjects[done] == subject for _, subject, _ in window)
                # Somebody else takes it; here it goes on without.
                for each in (times, subjects, parts):
                    del each[done]
                size -= 1
                batch = state.batch(columns_of(ranking, times, subjects, parts))


def test_they_are_the_window_counted_anew(made):
    for seed in range(EXAMPLES):
        check(made, seed)


COUNTS = Ranking(
    1, (Branch(5),), (By(1, NONE, descending=True),), (0, 1), 0, 2, apart=False, ticks=False
)


def test_a_subject_that_is_there_is_refused_and_nothing_happens(made):
    state = made(COUNTS)
    one = inline_integer(1)
    batch = state.batch([column(each) for each in ([0, 9, 9], [7, 7, 8], [one] * 3, [1] * 3)])
    assert state.run(batch, 0, 3, True) == 1
    assert (state.refused, state.changed, len(state)) == (True, False, 1)
    assert state.shown() == [(one, 1)]
    assert state.run(batch, 2, 3) == 3
    assert not state.refused
    assert len(state) == state.groups == 1


def test_wrong_use_of_the_compiled_one_is_an_error():
    make = compiled_groups()
    if make is None:
        pytest.skip("built without a compiler")
    right: Any = COUNTS
    branch: Any = COUNTS.branches[0]
    wrongs: list[Any] = [
        right._replace(keys=0),
        right._replace(keys=65),
        right._replace(order=()),
        *(right._replace(order=(By(*each, True),)) for each in ((2, -1), (4, -1), (1, 0), (0, 2))),
        right._replace(order=((1, -1),)),
        right._replace(ties=(-1,)),
        right._replace(ties=(4,)),
        right._replace(wanted=0),
        right._replace(branches=()),
        right._replace(branches=(branch,) * 9),
        right._replace(branches=(1,)),
        *(
            right._replace(branches=(branch._replace(**each),))
            for each in (
                {"width": -1},
                {"width": 2**63},
                {"least": 0},
                {"other_width": -2},
                {"numbers": (MEDIAN,), "other_width": 3},
                {"numbers": (4,)},
                {"numbers": (-1,)},
                {"numbers": (SUM,) * 9},
                {"numbers": ("1",)},
                {"numbers": [SUM]},
            )
        ),
        (*right[:1], (1,), *right[2:]),
        (),
    ]
    for wrong in wrongs:
        with pytest.raises((ValueError, TypeError, OverflowError)):
            make(wrong)
    state = make(COUNTS)
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
            state.run(batch, 0, 1)
    for start, stop in ((-1, 1), (2, 2), (0, 2), (1, 0)):
        with pytest.raises(ValueError, match="no such row"):
            state.run((short,) * 4, start, stop)
    assert len(state) == 0
    assert state.run((short,) * 4, 0, 1) == 1


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
