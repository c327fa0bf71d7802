"""Publish a report as a page, a Markdown summary, figures as SVG, and raw data."""

import json
import lzma
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.errors import ConfigurationError, ExperimentError
from experiments.harness import report
from experiments.harness.items import Check
from experiments.harness.results import Experiment

PAGE = "index.html"
SUMMARY = "README.md"
FIGURES = "figures"
RESULTS = "results"
_PACKED = f"{report.RAW}.xz"
_SHOWN_FIGURES = 1
_SHOWN_ANSWERS = 3
"""Sentences in the README; the report begins with all."""
# Paths of somebody's machine have no place in what is published.
_MACHINE_PATH = re.compile(
    r"(?:(?<![\w.:/])|(?<=file://))/(?:home|root|tmp|work|mnt|opt|srv|var|Users)/[\w./-]+"
)
_MARKED = re.compile(r"(<!-- report -->\n).*?(<!-- /report -->)", re.DOTALL)


def publish_report(
    output: Path, experiments: Iterable[Experiment], folder: Path, readme: Path | None = None
) -> Path:
    """Write the published form of the results; return the path of the page.

    Earlier files are removed. The `readme` gets a summary between ``<!-- report -->`` marks.
    """
    if output.resolve().is_relative_to(folder.resolve()):
        raise ConfigurationError(f"{folder} holds the results: choose another folder")
    published = {PAGE, SUMMARY, FIGURES, RESULTS}
    if folder.is_dir() and {path.name for path in folder.iterdir()} - published:
        raise ConfigurationError(f"{folder} holds other files: choose another folder")
    figures: dict[str, Path] = {}

    def image(path: Path) -> str:
        name = f"{path.parts[-3]}-{path.name}"
        figures[name] = path
        return f"{FIGURES}/{name}"

    experiments = list(experiments)
    measured = report.sections(output, experiments, image)
    if not measured:
        raise ConfigurationError(f"there are no results in {output}")
    for section in measured:
        section.files.clear()
    # Nothing of the earlier report is removed before all of this one is made.
    with _beside(folder) as new:
        (new / FIGURES).mkdir()
        for name, path in figures.items():
            shutil.copyfile(path, new / FIGURES / name)
        for section in measured:
            _pack(output / section.name, new / RESULTS / section.name)
        checks = report.checks_of(measured, experiments)
        html = _clean(report.render_report(measured, checks))
        (new / PAGE).write_text(html, encoding="utf-8")
        summary = _clean(_summary(measured, checks))
        (new / SUMMARY).write_text(summary, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    page = folder / PAGE
    if readme is not None:
        _mention(readme, measured, folder)
    return page


def unpack_report(folder: Path, output: Path) -> list[str]:
    """Restore the results of a published report; return the experiments' names."""
    packed = sorted((folder / RESULTS).glob(f"*/{_PACKED}"))
    if not packed:
        raise ConfigurationError(f"{folder} holds no published results")
    names = [each.parent.name for each in packed]
    if taken := [name for name in names if (output / name).exists()]:
        raise ConfigurationError(f"{output} has results of {', '.join(taken)}: choose another")
    for each in packed:
        target = output / each.parent.name
        try:
            with _beside(target) as new:
                with lzma.open(each) as source, (new / report.RAW).open("wb") as copy:
                    shutil.copyfileobj(source, copy)
                shutil.copyfile(each.with_name(report.FACTS), new / report.FACTS)
                new.rename(target)
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise ExperimentError(f"{each}: {error}") from error
    return names


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _pack(results: Path, target: Path) -> None:
    target.mkdir(parents=True)
    raw = _clean((results / report.RAW).read_text(encoding="utf-8"))
    (target / _PACKED).write_bytes(lzma.compress(raw.encode()))
    facts = _cleaned(json.loads((results / report.FACTS).read_text(encoding="utf-8")))
    (target / report.FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _cleaned(value: Any) -> Any:
    match value:
        case str():
            return _clean(value)
        case list():
            return [_cleaned(each) for each in value]
        case dict():
            return {name: _cleaned(each) for name, each in value.items()}
    return value


def _clean(text: str) -> str:
    return _MACHINE_PATH.sub("…", text)


def _summary(measured: Sequence[report.Section], checks: Sequence[Check]) -> str:
    lines = [
        "# Measured",
        "",
        f"{report.run_in_words(measured)} {measured[0].facts['machine']['system']}, Python "
        f"{measured[0].facts['machine']['Python']}. Written by "
        f"`tpf-experiments publish`; everything that was measured is in "
        f"[{PAGE}]({PAGE}), how it was measured in [experiments](../experiments.md), the raw data "
        f"in [{RESULTS}]({RESULTS}).",
    ]
    for section in measured:
        if section.answers:
            lines += ["", " ".join(section.answers)]
        for shown in section.answer_figures[:1]:
            lines += ["", f"![{shown.summary}]({shown.image})"]
    if checks:
        lines += ["", *_claims(checks)]
    for section in measured:
        how = (
            f"{section.facts['started'][:10]}, commit {section.facts['versions']['commit']}; "
            f"load of the machine at the start: {section.facts['load at the start']}"
        )
        how += "; quick: small sizes." if section.facts["quick"] else "."
        lines += ["", f"## {section.name}", "", section.question, "", how, ""]
        lines += [f"- {text}" for text in (*section.headlines, *section.unmade)]
        for shown in _figures(section):
            lines += ["", f"![{shown.summary}]({shown.image})"]
    return "\n".join(lines) + "\n"


def _claims(checks: Sequence[Check]) -> Iterator[str]:
    yield "## The papers' figures and ours"
    yield ""
    others = [check for check in checks if check.verdict != "agrees"]
    agree = len(checks) - len(others)
    yield f"{agree} of {len(checks)} claims agree ([all]({PAGE}#papers)). The others:"
    yield ""
    yield "| paper | its claim | its figure | ours | |"
    yield "|---|---|---|---|---|"
    for check in others:
        claim = check.claim
        verdict = f"{check.verdict}: {check.why}" if check.why else check.verdict
        yield (
            f"| {claim.paper} | {claim.says} | {claim.figure} "
            f"| {report.shown_value(check.measured)} | {verdict} |"
        )


def _figures(section: report.Section) -> list[report.ShownFigure]:
    shown = [block for kind, block in section.blocks if kind == "figure"]
    return shown[:_SHOWN_FIGURES]


def _mention(readme: Path, measured: Sequence[report.Section], folder: Path) -> None:
    text = readme.read_text(encoding="utf-8")
    link = folder.resolve().relative_to(readme.resolve().parent).as_posix()
    line = f"[Measured]({link}/{SUMMARY}) {report.run_in_words(measured)}\n"
    for section in measured:
        if section.answers:
            line += "\n" + " ".join(section.answers[:_SHOWN_ANSWERS]) + "\n"
        for shown in section.answer_figures[:1]:
            line += f"\n![{shown.summary}]({link}/{shown.image})\n"
    new, count = _MARKED.subn(lambda marks: marks[1] + line + marks[2], text)
    if count != 1:
        raise ConfigurationError(f"{readme} has no place for the report: <!-- report -->")
    readme.write_text(new, encoding="utf-8")
