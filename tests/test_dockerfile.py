"""The container is made by the same script as everything else."""

import re
import subprocess
import tomllib
from pathlib import Path

from tpf_server.configuration import ENVIRONMENT_PREFIX
from tpf_server.settings import Settings, table

ROOT = Path(__file__).parents[1]
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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= copied
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {f"!{name}" for name in copied} <= set(allowed)


def test_it_sets_what_can_be_set() -> None:
    names = {f"{ENVIRONMENT_PREFIX}{row.name.upper()}" for row in table(Settings)}
    assert {name for name, _ in variables() if name.startswith(ENVIRONMENT_PREFIX)} <= names


def test_the_base_fits_the_projects_python() -> None:
    assert of("FROM") == ["$BASE"]
    version = re.fullmatch(r"BASE=python:3\.(\d+)-slim", of("ARG")[0])
    assert version is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert int(version[1]) >= int(project["requires-python"].removeprefix(">=3."))


def test_the_image_has_the_versions_of_everything_else_by_their_hashes() -> None:
    listed = (ROOT / "requirements-image.txt").read_text(encoding="utf-8")
    line = re.compile(r"^([\w.-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", re.MULTILINE)
    versions = dict(line.findall(listed))
    assert len(versions) == listed.count("==")
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").lower().replace("_", "-")
    known = dict(re.findall(r"^([\w.-]+)==(\S+)", constraints, re.MULTILINE))
    assert {name: each for name, each in versions.items() if known.get(name, each) != each} == {}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = {*project["dependencies"], *extras["cli"], *extras["server"]} - {OWN}
    assert {re.split(r"[^\w.-]", each)[0].lower() for each in needed} <= versions.keys()


def test_every_dependency_has_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    every = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        every += [each for each in extra if each != OWN]
    assert [each for each in every if "==" not in each and not (">=" in each and "<" in each)] == []
