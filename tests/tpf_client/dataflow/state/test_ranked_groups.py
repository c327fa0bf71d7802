"""Ranked groups against counting the window anew after each row."""

import os
import random
import subprocess
import sys
from array import array
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from tpf_client.dataflow.state import ranked_groups
from tpf_client.dataflow.state.ranked_groups import (
    MIDDLES,
    MOST_SIZE,
    NONE,
    WITH_ROW,
    Branch,
    By,
    Ranking,
)
from tpf_client.sparql.expressions.inlined import decimal_of, inline_decimal, inline_integer

ROOT = Path(__file__).parents[4]
EXAMPLES = 10


def number_of(cell):
    return Fraction(cell >> 3) if cell & 7 == 1 else Fraction(decimal_of(cell))


def cut_off(value, digits=18):
    """A fraction as a decimal with so many digits behind the point, those behind cut off."""
    whole = int(abs(value) * 10**digits)
    return Fraction(whole if value >= 0 else -whole, 10**digits)


def middles_of(cells):
    """What is shown of numbers, and what groups are ordered by there."""
    ordered = sorted(cells, key=lambda each: (number_of(each), each))
    low, high = ordered[(len(cells) - 1) // 2], ordered[len(cells) // 2]
    return (low, high), (number_of(low) + number_of(high)) / 2


def places_of(ranking):
    """Of each branch where its size is in a row, and where its numbers begin."""
    found, place = [], ranking.keys
    for branch in ranking.branches:
        numbers = [place + 1 + MIDDLES * number for number in range(branch.medians)]
        found.append((place, numbers))
        place += branch.shown
    return found


def best(window, ranking, at):
    """The rows that are shown, by definition."""
    groups = {}
    for number, branch in enumerate(ranking.branches):
        gate = branch.other_width != NONE
        others = {}
        for when, parts in window if gate else ():
            _, there, _, theirs = parts[number][2]
            if when >= at - branch.other_width:
                others[there] = max(theirs, others.get(there, theirs))
        for when, parts in window:
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
                for number in range(branch.medians):
                    shown, by[len(row)] = middles_of([cells[number] for cells in part])
                    row += shown
            rows.append(tuple(row))
            values[rows[-1]] = by

    def value(row, place, over):
        found = values[row][place]
        return found if over == NONE else cut_off(found / row[over])

    def rank(row):
        by = [(value(row, by.place, by.over), by.descending) for by in ranking.order]
        return [-value if d else value for value, d in by], [row[p] for p in ranking.ties]

    return sorted(rows, key=rank)[ranking.offset : ranking.limit]


def some_branch(chance):
    kind = chance.choice(("count", "numbers", "numbers", "gate"))
    return Branch(
        width=chance.choice((0, 3, 20, 300)),
        least=chance.choice((1, 1, 1, 2)),
        most=chance.choice((MOST_SIZE, MOST_SIZE, 3)),
        medians=chance.randint(0, 3) if kind == "numbers" else 0,
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
        limit=offset + chance.choice((1, 3, 10, 40)),
        **chance.choice(
            (
                {"apart": False, "ticks": False},
                {"apart": True, "ticks": False},
                {"apart": False, "ticks": True},
            )
        ),
    )


def some_cells(chance):
    """Integers and decimals, some of them of the same value, and some large."""
    return chance.choice(
        (
            *(inline_integer(n) for n in (-3, 0, 1, 2, 2**59)),
            *(inline_decimal(Decimal(n)) for n in ("1", "2.5", "-3.25", "0.000001", "99999999999")),
            inline_integer(chance.randrange(chance.choice((4, 200)))),
        )
    )


def some_parts(chance, ranking):
    """What a row is in each branch: its key, its number, and what is beyond the gate."""
    own = tuple(some_cells(chance) for _ in range(ranking.keys))
    parts = []
    for branch in ranking.branches:
        key = own if chance.random() < 0.7 else tuple(some_cells(chance) for _ in own)
        met = [chance.randrange(4), chance.randrange(4), *[chance.choice((-9, 0, 7, 8))] * 2]
        met[3] += chance.randrange(3) - 1
        cells = tuple([some_cells(chance) for _ in range(branch.medians)])
        parts.append((key if chance.random() < 0.9 else None, cells, tuple(met)))
    return parts


def columns_of(ranking, times, rows):
    """Columns as a state takes them."""
    found = [times]
    for number, branch in enumerate(ranking.branches):
        parts = [row[number] for row in rows]
        nothing = (0,) * ranking.keys
        found += [[(key or nothing)[n] for key, _, _ in parts] for n in range(ranking.keys)]
        found.append([key is not None for key, _, _ in parts])
        found += [[cells[n] for _, cells, _ in parts] for n in range(branch.medians)]
        if branch.other_width != NONE:
            found += [[met[n] for _, _, met in parts] for n in range(4)]
    return [array("q", each) for each in found]


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
        parts = [some_parts(chance, ranking) for _ in range(size)]
        batch = state.batch(columns_of(ranking, times, parts))
        done = 0
        while done < size:
            before = done
            done = state.run(batch, done, chance.choice((size, min(size, done + 3))))
            for row in range(before, done):
                now = times[row]
                same_until(now)
                passed = now
                window = [each for each in window if each[0] >= now - width]
                # What goes before a row comes is seen by itself.
                assert not ranking.apart or best(window, ranking, now) == shown
                window.append((now, parts[row]))
                found = best(window, ranking, now)
                if row < done - 1 or not state.changed or state.passed != WITH_ROW:
                    assert found == shown
                shown = found
            if state.passed != WITH_ROW:
                assert state.changed
                if ranking.ticks:
                    assert passed < state.passed < times[done]
                    same_until(state.passed)
                else:
                    assert ranking.apart
                    assert state.passed == times[done]
                passed = state.passed
                window = [each for each in window if each[0] >= passed - width]
                shown = best(window, ranking, passed)
            assert state.shown() == shown
    until = at + chance.choice((0, 4, 400))
    while state.pass_to(until):
        same_until(state.passed)
        passed = state.passed
        window = [each for each in window if each[0] >= passed - width]
        shown = best(window, ranking, passed)
        assert state.shown() == shown
    same_until(until)
    assert state.shown() == best(window, ranking, until)
    while state.pass_to(at + 1000):
        pass
    assert state.shown() == []


def test_they_are_the_window_counted_anew():
    if ranked_groups.library() is None:
        pytest.skip("built without a compiler")
    for seed in range(EXAMPLES):
        check(ranked_groups.RankedGroups, seed)


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
    vars(ranked_groups)["_LIBRARY"] = file
    for seed in range(8):
        check(ranked_groups.RankedGroups, seed)
    print("clean")  # noqa: T201


if __name__ == "__main__":
    play(sys.argv[1])
