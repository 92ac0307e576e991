"""`foundry-cli install`: our entry in a client's configuration, and nothing else touched."""

import json
import tomllib

import pytest

from foundry_mcp.cli.install import PLACES, install
from foundry_mcp.core.errors import ConflictError

CLIENTS = sorted(PLACES)
JSON_CLIENTS = [client for client in CLIENTS if client != "codex"]


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def here(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def entries(path, key):
    text = path.read_text(encoding="utf-8")
    return (tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)).get(key, {})


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_without_a_configuration_gets_one(client, home, here):
    done = install(client, here, home)

    entry = entries(done.path, PLACES[client].key)["foundry"]
    assert entry["command"]
    assert done.backup is None
    assert (str(here) in entry["args"]) is not PLACES[client].in_workspace


@pytest.mark.parametrize("client", CLIENTS)
def test_installing_twice_changes_nothing_the_second_time(client, home, here):
    first = install(client, here, home)
    written = first.path.stat().st_mtime_ns

    second = install(client, here, home)

    assert second.before == second.after == first.after
    assert first.path.stat().st_mtime_ns == written


@pytest.mark.parametrize("client", CLIENTS)
def test_a_dry_run_shows_the_change_and_writes_nothing(client, home, here):
    done = install(client, here, home, dry_run=True)

    assert "foundry" in done.after
    assert not done.path.exists()


@pytest.mark.parametrize("client", JSON_CLIENTS)
def test_other_servers_and_settings_stay_and_a_backup_is_kept(client, home, here):
    path, key = PLACES[client].path(home, here), PLACES[client].key
    path.parent.mkdir(parents=True, exist_ok=True)
    before = json.dumps({"theme": "dark", key: {"other": {"command": "o"}}})
    path.write_text(before, encoding="utf-8")
    path.chmod(0o640)

    done = install(client, here, home)

    settings = json.loads(path.read_text(encoding="utf-8"))
    assert settings["theme"] == "dark"
    assert settings[key]["other"] == {"command": "o"}
    assert set(settings[key]) == {"other", "foundry"}
    assert done.backup is not None
    assert done.backup.read_text(encoding="utf-8") == before
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("client", CLIENTS)
def test_removing_takes_out_our_entry_alone(client, home, here):
    install(client, here, home)

    done = install(client, here, home, remove=True)

    assert "foundry" not in entries(done.path, PLACES[client].key)
    assert install(client, here, home, remove=True).before == done.after


def test_comments_and_order_of_a_toml_file_stay(home, here):
    path = PLACES["codex"].path(home, here)
    path.parent.mkdir()
    before = '# mine\nmodel = "x"\n\n[mcp_servers.foundry]\ncommand = "old"\n\n[mcp_servers.other] # keep\ncommand = "o"\n'
    path.write_text(before, encoding="utf-8")

    install("codex", here, home)

    after = path.read_text(encoding="utf-8")
    assert after.startswith('# mine\nmodel = "x"\n')
    assert "[mcp_servers.other] # keep" in after
    assert after.count("[mcp_servers.foundry]") == 1
    assert "old" not in after
    assert tomllib.loads(after)["mcp_servers"]["foundry"]["command"] != "old"


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("cursor", "{ // a comment\n}"),
        ("cursor", "[1]"),
        ("cursor", '{"mcpServers": []}'),
        ("vscode", "not json"),
        ("codex", "= broken"),
        ("codex", 'mcp_servers = {foundry = {command = "inline"}}'),
    ],
)
def test_a_file_that_cannot_be_understood_is_left_alone_and_the_entry_is_told(client, text, home, here):
    path = PLACES[client].path(home, here)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ConflictError) as caught:
        install(client, here, home)

    assert path.read_text(encoding="utf-8") == text
    assert '"foundry"' in caught.value.remediation


def test_a_file_that_is_no_text_is_left_alone(home, here):
    path = PLACES["cursor"].path(home, here)
    path.parent.mkdir()
    path.write_bytes(b"\xff\xfe")

    with pytest.raises(ConflictError):
        install("cursor", here, home)

    assert path.read_bytes() == b"\xff\xfe"
