"""Requests that are none for this server, and answers that nobody can misuse."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from autotuner.cli import serve
from autotuner.values.errors import InputError
from autotuner.web.guard import LARGEST, LONGEST
from tests.helpers.refusing import refused
from tests.helpers.serving import serving
from tests.web.conftest import TOKEN

FOREIGN_NAMES = ("evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", "[::2]", "[bad")
"""What a browser sends after a foreign name was made to point here."""
OWN_NAMES = ("localhost", "LOCALHOST:8760", "127.0.0.1:1", "[::1]:8760")


@pytest.mark.parametrize("host", [*FOREIGN_NAMES, *OWN_NAMES])
def test_its_own_names_are_served_and_no_other(client: TestClient, host: str) -> None:
    answer = client.get("/api/v1/health", headers={"Host": host})
    assert answer.status_code == (200 if host in OWN_NAMES else 421)


FOREIGN = (
    {"Origin": "http://evil.example"},
    {"Origin": "http://localhost:9999"},
    {"Origin": "null"},
    {"Origin": "http://[bad"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
)


def test_a_change_from_another_site_is_refused_whatever_it_shows(writable: TestClient, shown: dict[str, str]) -> None:
    for headers in FOREIGN:
        answer = writable.post("/api/v1/sweeps", headers={**shown, **headers}, json={"space": "sdpa_cpu"})
        assert answer.status_code == 403, headers
    assert writable.get("/api/v1/sweeps?all=true").json()["sweeps"] == []


def test_a_change_from_its_own_page_is_taken(writable: TestClient, shown: dict[str, str]) -> None:
    headers = {**shown, "Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    answer = writable.post("/api/v1/sweeps", headers=headers, json={"space": "sdpa_cpu"})
    assert answer.status_code == 201


def test_a_large_body_is_refused_by_what_it_says_and_as_it_comes(writable: TestClient, shown: dict[str, str]) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(LARGEST // 1024 + 2):
            yield b" " * 1024

    for content in (b" " * (LARGEST + 1), pieces()):
        assert writable.post("/api/v1/sweeps", headers=shown, content=content).status_code == 413
    odd = {**shown, "Content-Length": "many"}
    assert writable.post("/api/v1/sweeps", headers=odd, content=b"{}").status_code == 400
    assert writable.get(f"/?{'a' * LONGEST}").status_code == 414


@pytest.mark.parametrize(
    "path",
    [
        "/static/../settings.py",
        "/static/%2e%2e/settings.py",
        "/static/..%2f..%2fvalues/config.py",
        "/static//etc/passwd",
        "/studies/..%2F..%2Fetc%2Fpasswd",
        "/studies/%2e%2e/saved.html",
        "/studies/x%00y",
    ],
)
def test_no_path_leads_out(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (404, 422)
    assert "root:" not in answer.text
    assert "import annotations" not in answer.text


@pytest.mark.parametrize("path", ["/", "/api/v1/health", "/static/pages.css", "/nothing", "/metrics"])
def test_every_answer_says_what_a_browser_may_do_with_it(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"


def test_an_answer_is_packed_for_who_takes_that_and_its_head_alone_can_be_asked_for(
    client: TestClient, study: str
) -> None:
    for path in (f"/studies/{study}", f"/api/v1/studies/{study}/leaderboard", "/static/pages.css"):
        packed, plain = client.get(path), client.get(path, headers={"Accept-Encoding": "identity"})
        assert (packed.headers["content-encoding"], plain.headers.get("content-encoding")) == ("gzip", None)
        assert packed.content == plain.content
        head = client.head(path, headers={"Accept-Encoding": "identity"})
        assert (head.status_code, head.headers["content-length"]) == (200, plain.headers["content-length"])


# The token ------------------------------------------------------------------------------------------------------------


def test_without_a_token_nothing_can_be_changed(client: TestClient) -> None:
    answer = client.post("/api/v1/sweeps", headers={"Authorization": "Bearer "}, json={"space": "sdpa_cpu"})
    assert answer.status_code == 403
    assert "read-only" in answer.json()["error"]


def test_the_token_must_be_shown(writable: TestClient) -> None:
    for said in ("", "Bearer wrong", f"Basic {TOKEN}", "Bearer \u00e9", f"Bearer {TOKEN}x"):
        headers = {b"Authorization": said.encode("latin-1")}
        assert writable.post("/api/v1/sweeps", headers=headers, json={"space": "sdpa_cpu"}).status_code == 401


@pytest.mark.parametrize("call", ["sweeps", "devices:clear"])
@pytest.mark.parametrize("body", [b"{", b'{"space": 1}', b"\xff"])
def test_who_shows_no_token_hears_nothing_of_the_body(
    writable: TestClient, shown: dict[str, str], call: str, body: bytes
) -> None:
    kind = {"Content-Type": "application/json"}
    assert writable.post(f"/api/v1/{call}", headers=kind, content=body).status_code == 401
    assert writable.post(f"/api/v1/{call}", headers={**kind, **shown}, content=body).status_code in (400, 422)


def test_a_cookie_is_no_token(writable: TestClient) -> None:
    """Otherwise another site's form could change something in its reader's name."""
    assert writable.post("/login", data={"token": TOKEN}).status_code == 200
    assert writable.post("/api/v1/sweeps", json={"space": "sdpa_cpu"}).status_code == 401


def test_a_form_must_be_of_the_readers_own_page(writable: TestClient) -> None:
    logged = writable.post("/login", data={"token": TOKEN}, follow_redirects=False)
    cookie = logged.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    wanted = {"space": "sdpa_cpu", "key": "ab", "trials": "3"}
    assert writable.post("/queue", data={**wanted, "form": "guessed"}).status_code == 403
    page = writable.get("/queue").text
    form = page.split('name="form" value="')[1].split('"')[0]
    done = writable.post("/queue", data={**wanted, "form": form}, follow_redirects=False)
    assert (done.status_code, done.headers["location"]) == (303, "/sweeps/1")
    again = writable.post("/queue", data={**wanted, "form": form}, follow_redirects=False)
    assert again.headers["location"] == "/sweeps/1"  # the form's key makes it one sweep
    other = writable.post("/queue", data={**wanted, "form": form, "trials": "4"}, follow_redirects=False)
    assert other.headers["location"] == "/sweeps/2"  # a reader went back to the form, and asked for another one
    writable.post("/logout", data={"form": form})
    assert writable.post("/sweeps/1/cancel", data={"form": form}).status_code == 403


def test_every_page_that_is_sent_has_a_form_of_its_own(writable: TestClient) -> None:
    """Two tabs ask for two sweeps, of the same space too; the page is drawn once."""
    writable.post("/login", data={"token": TOKEN})
    wanted, found = {"space": "sdpa_cpu", "trials": "3"}, []
    for page in [writable.get("/queue") for _ in range(2)]:
        assert (page.headers["cache-control"], page.headers.get("etag")) == ("no-store", None)
        carried = {name: page.text.split(f'name="{name}" value="')[1].split('"')[0] for name in ("form", "key")}
        done = writable.post("/queue", data={**wanted, **carried}, follow_redirects=False)
        found.append(done.headers["location"])
    assert found == ["/sweeps/1", "/sweeps/2"]
    refused = writable.post("/queue", data={**wanted, **carried, "space": "none"})
    assert refused.status_code == 400
    assert carried["key"] not in refused.text


def test_a_wrong_token_logs_nobody_in(writable: TestClient) -> None:
    answer = writable.post("/login", data={"token": "guess"})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_users_have_names_and_a_private_server_answers_nobody_else(empty: Path, tmp_path: Path) -> None:
    users = tmp_path / "users"
    tokens = {name: serve._added(users, name) for name in ("ann", "bob")}
    assert not any(token in users.read_text() for token in tokens.values())
    with refused(InputError, "has ann already"):
        serve._added(users, "ann")
    path = shutil.copy(empty, tmp_path / "studies.db")
    with serving(path, users=serve._users(users), private=True) as found:
        shown = {name: {"Authorization": f"Bearer {token}"} for name, token in tokens.items()}
        assert [found.get(each).status_code for each in ("/api/v1/sweeps", "/metrics")] == [401, 401]
        page = found.get("/queue", headers={"Accept": "text/html"}, follow_redirects=False)
        assert (page.status_code, page.headers["location"]) == (303, "/login")
        assert found.post("/api/v1/sweeps", headers=shown["ann"], json={"space": "sdpa_cpu"}).status_code == 201
        assert found.post("/api/v1/sweeps/1:cancel", headers=shown["bob"]).status_code == 200
        texts = [each["text"] for each in found.get("/api/v1/sweeps/1/events", headers=shown["ann"]).json()["events"]]
        assert {"submitted by ann", "cancel by bob"} <= {*texts}
        found.post("/login", data={"token": tokens["bob"]})
        assert found.get("/queue").status_code == 200


def test_a_read_only_server_takes_no_token(tmp_path_factory: pytest.TempPathFactory, made: Path) -> None:
    with serving(made, token=TOKEN, read_only=True) as found:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert found.post("/api/v1/sweeps", headers=headers, json={"space": "sdpa_cpu"}).status_code == 403
        assert found.post("/login", data={"token": TOKEN}).status_code == 403
