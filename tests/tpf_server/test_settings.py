import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tpf_server.cli import main
from tpf_server.configuration import REMOVED, Configuration, read_configuration, settings_help
from tpf_server.errors import SettingsError
from tpf_server.settings import DatasetSettings, Settings, table
from tpf_server.sources import dataset_of_path, each_name_once

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "operations.md"


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('port = 1\nworkers = 1\npage_size = 1\n[datasets.trains]\nsource = "x.nt"\n')
    environment = {"TPF_SERVER_WORKERS": "2", "TPF_SERVER_PAGE_SIZE": "2", "HOME": "x"}
    server, datasets = read_configuration(file, environment, {"page_size": 3, "host": None})
    assert (server.port, server.workers, server.page_size) == (1, 2, 3)
    assert server.host == "127.0.0.1"
    assert datasets == (DatasetSettings(name="trains", source="x.nt"),)


@pytest.mark.parametrize(
    "text",
    [
        "colour = 1", "port = 'x'", "port = 70000", "workers = 0", "base_url = 'ftp://x'",
        "max_values = -1",
        "compress = 1", "[datasets]\nx = 1", "[datasets.x]\ncolour = 1", "port = ",
        "[datasets.x]\nannotation = 'y'", "[datasets.x]\nviews = ['y']",
        "[datasets.x]\nviews = [1]",
        "[datasets.healthz]", "[datasets.'a b']", "[datasets.x]\nkey = 'y'",
        "[datasets.x]\nmax_age = -1", "[datasets.x]\nlive = 5", "prefixes = {a = 1}",
        "prefixes = {'a b' = 'http://e/'}", "prefixes = {a = 'no IRI'}", "prefixes = {a = 'x:>'}",
        "[datasets.x.prefixes]\n'a>' = 'http://e/'", "[datasets.x]\nprefixes = 'a'",
        "stream_kernel = 'fast'", "source_interval = -inf", "remote_interval = 1e10",
        "allow_service = ['http://[x']", "[remote]\n'urn:g' = 'http://[x'",
        *(f"[datasets.x]\n{name} = {value}"
          for name in ("max_age", "retention", "history", "event_stream")
          for value in ("inf", "nan", "1e20", f"1{400 * '0'}", "true")),
        "query_map_tiles = 'http://e/{z}/{x}/{y}'", "query_map_attribution = 'us'",
        "query_map_tiles = 'e/{z}/{x}/{y}'\nquery_map_attribution = 'us'",
        "keep_windows = true", "base_url = 'http://e/<x>'", "query_page = 'http://e/`'",
        *(f"{name} = {value}" for name in ("idle_timeout", "body_timeout")
          for value in ("inf", "1e10", f"1{30 * '0'}", "0")),
        *(f"{name} = 1{30 * '0'}" for name in ("workers", "followers", "change_followers")),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "server.toml"
    file.write_text(text)
    with pytest.raises(SettingsError):
        read_configuration(file, {}, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("live = 5", "dataset x: live is true or false or a text, not 5"),
        ("retention = -1", "dataset x: retention cannot be negative"),
        ("page_size = -1", "dataset x: page_size cannot be negative"),
        ("name = 'streams'", "'streams'; it has letters, digits and _ ~ . -, and is none of api-"),
    ],
)
def test_what_is_wrong_with_a_dataset_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "server.toml"
    file.write_text(f"[datasets.x]\n{text}", "utf-8-sig")  # a byte order mark is no part of it
    with pytest.raises(SettingsError, match=re.escape(said)):
        read_configuration(file, {}, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COLOUR", "1"),
        ("PORT", "x"),
        ("COMPRESS", "maybe"),
        ("PREFIXES", "a"),
        ("SOURCE_INTERVAL", "x"),
        ("SOURCE_INTERVAL", "nan"),
    ],
)
def test_a_bad_environment_is_refused(name: str, value: str) -> None:
    with pytest.raises(SettingsError):
        read_configuration(None, {f"TPF_SERVER_{name}": value}, {})


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_what_replaces_a_removed_setting_is_said(tmp_path: Path, name: str) -> None:
    file = tmp_path / "server.toml"
    file.write_text(f"{name} = 1")
    with pytest.raises(SettingsError, match="tpf-query serve"):
        read_configuration(file, {}, {})
    with pytest.raises(SettingsError, match="tpf-query serve"):
        read_configuration(None, {f"TPF_SERVER_{name.upper()}": "1"}, {})
    value = [] if name == "query" else ["1"]
    result = CliRunner().invoke(main, [f"--{name.replace('_', '-')}", *value])
    assert (result.exit_code, "tpf-query serve" in result.stderr) == (2, True)


def test_an_address_of_ipv6_stands_in_brackets_in_urls() -> None:
    assert Settings(host="::1").base == "http://[::1]:3000/"


def test_seconds_come_from_the_environment_too() -> None:
    server, _ = read_configuration(None, {"TPF_SERVER_SOURCE_INTERVAL": "0.5"}, {})
    assert server.source_interval == 0.5


def test_tokens_come_from_files(tmp_path: Path) -> None:
    secret, other = tmp_path / "secret", tmp_path / "other"
    secret.write_text("s e\n")
    other.write_text("o")
    file = tmp_path / "server.toml"
    file.write_text(f'[datasets.x]\ntoken_file = "{other}"')
    environment = {"TPF_SERVER_PUBLISH_TOKEN_FILE": str(secret)}
    server, (dataset,) = read_configuration(file, environment, {})
    assert (server.publish_token, dataset.token) == ("s e", "o")
    with pytest.raises(SettingsError, match="publish_token or publish_token_file"):
        read_configuration(file, environment, {"publish_token": "x"})
    for content in (None, "", "\n", "a\nb", "é"):
        secret.unlink()
        secret.write_text(content or "")
        if content is None:
            secret.rename(tmp_path / "away")
            secret.symlink_to(tmp_path / "nowhere")
        with pytest.raises(SettingsError):
            read_configuration(file, environment, {})


def test_settings_reach_the_workers_as_they_are() -> None:
    configuration = Configuration(
        Settings(prefixes={"a": "http://example.org/"}, title="é", publish_token="x y"),
        (DatasetSettings(name="x", live=True, views=("plain",), max_age=1.5),),
    )
    assert Configuration.from_json(configuration.to_json()) == configuration


def test_every_setting_is_described_and_documented() -> None:
    text, documentation = settings_help(), DOCUMENTATION.read_text(encoding="utf-8")
    for kind in (Settings, DatasetSettings):
        for row in table(kind):
            assert row.name in text
            assert f"| `{row.name}` |" in documentation


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("data/trains.nt", "trains"), ("trains.nq.gz", "trains"), ("stores/trains", "trains"),
        ("my data.ttl", "my-data"), ("v1.2.nt", "v1.2"), ("trains.STORE", "trains"),
    ],
)  # fmt: skip
def test_a_dataset_is_named_after_its_file(path: str, name: str) -> None:
    assert dataset_of_path(path) == DatasetSettings(name=name, source=path)


def test_two_datasets_cannot_share_a_name() -> None:
    with pytest.raises(SettingsError, match="two datasets"):
        each_name_once([dataset_of_path("a/x.nt"), dataset_of_path("b/x.nt")])


def test_the_example_in_the_documentation_is_read(tmp_path: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", DOCUMENTATION.read_text("utf-8"), re.M | re.S)
    assert blocks
    for number, block in enumerate(blocks):
        file = tmp_path / "server.toml"
        file.write_text(block, encoding="utf-8")
        server, datasets = read_configuration(file, {}, {})
        assert server.base == "https://data.example.org/"
        if not number:
            assert server.workers == 4
            assert [dataset.name for dataset in datasets] == ["trains", "stops"]
