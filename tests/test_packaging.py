"""Container, wheels and workflows are made by the same commands as everything else."""

import re
import shutil
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml

from annotations.wording import user_agent
from tpf_server.configuration import ENVIRONMENT_PREFIX
from tpf_server.settings import Settings, table

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OWN = "live-linked-data[cli]"
"""What extras with commands need of this project itself."""
STEPS = [
    line.split(maxsplit=1)
    for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


def of(instruction: str) -> list[str]:
    return [rest for name, rest in STEPS if name == instruction]


def test_every_step_is_a_command_of_the_projects_script() -> None:
    usage = subprocess.run(
        [ROOT / "run", "help"], capture_output=True, text=True, check=True
    ).stdout
    commands = set(re.findall(r"^  ([a-z]+)", usage, re.MULTILINE))
    assert of("RUN") == ["./run install", "install -d -o nobody /data"]
    assert "install" in commands
    script, command, program = re.findall(r'"([^"]+)"', of("ENTRYPOINT")[0])
    assert script == "./run"
    assert command in commands
    project = PYPROJECT["project"]
    assert program in project["scripts"]
    assert set(dict(variables())["EXTRAS"].split(",")) <= set(project["optional-dependencies"])


def variables() -> list[tuple[str, str]]:
    return [
        (name, value)
        for line in of("ENV")
        for name, _, value in (pair.partition("=") for pair in line.split())
    ]


def test_it_copies_what_is_there_and_needed() -> None:
    copied = {name for line in of("COPY") for name in line.split()[:-1]}
    assert all((ROOT / name).exists() for name in copied)
    assert set(PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= copied
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {f"!{name}" for name in copied} <= set(allowed)


def test_it_sets_what_can_be_set() -> None:
    names = {f"{ENVIRONMENT_PREFIX}{row.name.upper()}" for row in table(Settings)}
    assert {name for name, _ in variables() if name.startswith(ENVIRONMENT_PREFIX)} <= names


def test_the_base_fits_the_projects_python() -> None:
    assert of("FROM") == ["$BASE"]
    version = re.fullmatch(r"BASE=python:3\.(\d+)-slim", of("ARG")[0])
    assert version is not None
    project = PYPROJECT["project"]
    assert int(version[1]) >= int(project["requires-python"].removeprefix(">=3."))


def test_the_image_has_the_versions_of_everything_else_by_their_hashes() -> None:
    listed = (ROOT / "requirements-image.txt").read_text(encoding="utf-8")
    line = re.compile(r"^([\w.-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", re.MULTILINE)
    versions = dict(line.findall(listed))
    assert len(versions) == listed.count("==")
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").lower().replace("_", "-")
    known = dict(re.findall(r"^([\w.-]+)==(\S+)", constraints, re.MULTILINE))
    assert {name: each for name, each in versions.items() if known.get(name, each) != each} == {}
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    needed = {*project["dependencies"], *extras["cli"], *extras["server"]} - {OWN}
    assert {re.split(r"[^\w.-]", each)[0].lower() for each in needed} <= versions.keys()


def test_every_dependency_has_bounds() -> None:
    project = PYPROJECT["project"]
    every = [*project["dependencies"]]
    groups = [*project["optional-dependencies"].values(), *PYPROJECT["dependency-groups"].values()]
    for extra in groups:
        every += [each for each in extra if each != OWN]
    assert [each for each in every if "==" not in each and not (">=" in each and "<" in each)] == []


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
OURS = {"./run", "tests/conformance/fetch", "tests/peers/install", "tests/installed.py", "docker"}
"""Commands that steps of workflows may be; a contributor can run each of them here."""


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: str(file.name))
def test_steps_of_workflows_are_the_projects_commands(file: Path) -> None:
    jobs = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].values()
    commands = [step["run"] for job in jobs for step in job.get("steps", ()) if "run" in step]
    assert [each for each in commands if OURS.isdisjoint(each.split()) or "${{" in each] == []
    called = [job["uses"] for job in jobs if "uses" in job]
    assert [each for each in called if not (ROOT / each).is_file()] == []


def test_a_release_needs_the_version_of_everything_and_an_address(tmp_path: Path) -> None:
    for name in ("run", "pyproject.toml", "CITATION.cff", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    version = PYPROJECT["project"]["version"]

    def refusal(tag: str) -> str:
        return subprocess.run(
            [tmp_path / "run", "release", tag], check=False, capture_output=True, text=True
        ).stderr

    assert f"the version {version}" in refusal("v999")
    assert "reserved name" in refusal(f"v{version}")
    project = (tmp_path / "pyproject.toml").read_text("utf-8")
    (tmp_path / "pyproject.toml").write_text(project.replace("linked-data.example", "data.test"))
    assert refusal(f"v{version}") == ""
    for name in ("CITATION.cff", "CHANGELOG.md"):
        text = (tmp_path / name).read_text("utf-8")
        (tmp_path / name).write_text(text.replace(version, "999"))
        assert name in refusal(f"v{version}")
        (tmp_path / name).write_text(text)


def test_no_entry_of_the_changelog_is_there_twice() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()
    begins = Counter(line[:60] for line in lines if line.startswith("- "))
    assert [begin for begin, count in begins.items() if count > 1] == []


def test_requests_name_the_address_of_the_project() -> None:
    # Which is said in one place.
    assert user_agent("tpf-client").endswith(f" (+{PYPROJECT['project']['urls']['Homepage']})")


def test_all_packages_state_that_they_have_types() -> None:
    packages = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert [name for name in packages if not (ROOT / name / "py.typed").is_file()] == []
