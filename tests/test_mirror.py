"""Tests lie where what they are about lies."""

from tests.__main__ import ROOT, subject, themes


def test_a_test_file_is_beside_its_module_or_says_what_it_is_about() -> None:
    silent = {str(file) for files in themes().values() for file in files if not subject(file)}
    assert silent == set()


def test_folders_of_tests_are_those_of_the_packages() -> None:
    assert [f for f in themes() if not (ROOT / f.relative_to(ROOT / "tests")).is_dir()] == []
