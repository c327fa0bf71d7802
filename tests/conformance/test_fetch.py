"""The W3C's tests are fetched at a commit, whole or not at all."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support import w3c

SCRIPT = Path(__file__).with_name("fetch")
FOLDERS = re.findall(r"^(sparql\S+) (\S+) (.+)$", SCRIPT.read_text("utf-8"), re.MULTILINE)


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def fetch(target: Path, repository: Path, commit: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"REPOSITORY": repository.as_uri(), "COMMIT": commit}
    return subprocess.run(
        [SCRIPT, target], env=environment, check=False, capture_output=True, text=True
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a manifest in each folder, of which the newest commit is not fetched."""
    folder = tmp_path / "repository"
    for _, source, parts in FOLDERS:
        for part in parts.replace(".", "ask").split():
            (folder / source / part).mkdir(parents=True)
            (folder / source / part / "manifest.ttl").write_text(f"# {part}\n")
    git(folder, "init", "--quiet")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "tests")
    return folder


def test_the_folders_of_a_commit(tmp_path: Path, repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD").strip()
    (repository / "sparql" / "sparql12" / "version" / "manifest.ttl").write_text("# newer\n")
    git(repository, "commit", "--quiet", "-am", "newer")
    target = tmp_path / "w3c"
    assert fetch(target, repository, commit).returncode == 0
    manifests = {str(each.parent.relative_to(target)) for each in target.glob("*/*/manifest.ttl")}
    assert manifests == {
        f"w3c-{name}/{part}"
        for name, _, parts in FOLDERS
        for part in parts.replace(".", "ask").split()
    }
    assert (target / "w3c-sparql12" / "version" / "manifest.ttl").read_text() == "# version\n"
    # Once more asks nobody; what cannot be had leaves what is there.
    gone = tmp_path / "gone"
    assert fetch(target, gone, commit).returncode == 0
    assert fetch(target, gone, "0" * 40).returncode != 0
    assert (target / "w3c-sparql12" / "version" / "manifest.ttl").is_file()


def test_where_they_are_required_they_are_not_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(w3c, "SPARQL12", w3c.SPARQL12._replace(folder=tmp_path / "nowhere"))
    monkeypatch.delenv("W3C_SUITES", raising=False)
    assert w3c.needed().args == (True,)
    monkeypatch.setenv("W3C_SUITES", "required")
    with pytest.raises(FileNotFoundError, match=r"nowhere.*tests/conformance/fetch"):
        w3c.needed()
