"""Bundles: equal bytes for one study, brought into another store; what was changed or is hostile writes nothing."""

import gzip
import io
import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotuner.cli.app import app
from autotuner.serve import bundle
from autotuner.store import Store, queries
from autotuner.values.errors import InputError
from autotuner.values.versions import version_of
from tests.helpers.stores import sample_store

Members = list[tuple[tarfile.TarInfo, bytes]]


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNER_CACHE", str(tmp_path / "cache"))
    return sample_store(tmp_path / "studies.db")


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bundle of such a study: it takes most of a second to make."""
    folder = tmp_path_factory.mktemp("bundled")
    sample_store(folder / "studies.db")
    assert _said("bundle", "--store", str(folder / "studies.db"), "--out", str(folder / "a.tar.gz"))[0] == 0
    return (folder / "a.tar.gz").read_bytes()


def _said(*words: str) -> tuple[int, str]:
    made = CliRunner().invoke(app, words)
    return made.exit_code, made.output + (str(made.exception) if made.exception and not made.output else "")


def test_a_study_travels_and_is_the_same_bundle_again(name: str, tmp_path: Path) -> None:
    assert _said("bundle", "--out", "a.tar.gz")[0] == 0
    assert f"{name} is in " in _said("study", "copy", "a.tar.gz", "--to", "other.db")[1]
    assert _said("bundle", "--store", "other.db", "--out", "c.tar.gz")[0] == 0
    assert (tmp_path / "c.tar.gz").read_bytes() == (tmp_path / "a.tar.gz").read_bytes()
    assert "already" in _said("study", "copy", "a.tar.gz", "--to", "other.db")[1]
    assert f"{name} is in " in _said("study", "copy", name, "--to", "third.db")[1]
    manifest = bundle.read(tmp_path / "a.tar.gz").manifest
    assert (manifest.study, manifest.device.name) == (name, "simulated")
    assert {bundle.ROWS, bundle.PAGE} <= manifest.files.keys()


def test_a_machine_of_another_kind_says_what_it_cannot_check(name: str, bundled: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(bundled)
    code, printed = _said("verify", "a.tar.gz", "--json")
    assert code == 0
    found = json.loads(printed)["levels"]
    assert [each["level"] for each in found] == ["bytes", "gate", "order", "ratio"]
    assert {each["found"] for each in found} == {"not checked"}
    assert "the study is of simulated" in found[0]["detail"]


@pytest.mark.slow
def test_another_python_does_the_same_again(
    name: str, bundled: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.tar.gz").write_bytes(bundled)
    assert _said("verify", "a.tar.gz", "--json", "--python", sys.executable)[0] == 0
    assert json.loads(capfd.readouterr().out)["torch"][1] == version_of("torch")
    assert "--python nowhere: No such file" in _said("verify", "a.tar.gz", "--python", "nowhere")[1]


def test_the_shipped_study_of_an_h200_is_small_and_can_be_browsed(name: str, tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "docs" / "results" / "h200.tar.gz"
    assert shipped.stat().st_size < 1_000_000
    assert _said("study", "copy", str(shipped), "--to", "h200.db")[0] == 0
    code, shown = _said("show", "--store", "h200.db")
    assert (code, "Confirmed: 1.971" in shown, "tensor, % of peak" in shown) == (0, True, True)


def _renamed(to: str) -> Callable[[Members], None]:
    def harm(members: Members) -> None:
        members[1][0].name = to

    return harm


def _changed(members: Members) -> None:
    members[1] = (members[1][0], members[1][1][:-1] + b" ")


def _linked(members: Members) -> None:
    info = tarfile.TarInfo("builds/there")
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
    members.append((info, b""))


def _twice(members: Members) -> None:
    members.append(members[1])


def _without_manifest(members: Members) -> None:
    del members[0]


HARMS: dict[str, Callable[[Members], None]] = {
    **{f"named {to}": _renamed(to) for to in ("../evil", "/etc/evil", "a/../../evil", "builds//x", "a\nb")},
    **{"changed": _changed, "linked": _linked, "twice": _twice, "without a manifest": _without_manifest},
}


def _harmed(whole: bytes, harm: Callable[[Members], None]) -> bytes:
    members: Members = []
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        for each in archive:
            content = archive.extractfile(each)
            members.append((each, content.read()))
    harm(members)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(made.getvalue())


def _refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    before = sorted(path.parent.iterdir())
    with pytest.raises(InputError) as raised:
        bundle.read(path)
    assert "\n" not in str(raised.value)
    code, said = _said("study", "copy", path.name, "--to", "other.db", "--builds")
    assert (code, said) == (1, str(raised.value).replace(str(path), path.name))
    assert sorted(path.parent.iterdir()) == before


@pytest.mark.parametrize("harm", HARMS)
def test_what_is_hostile_is_refused_and_nothing_written(name: str, bundled: bytes, harm: str, tmp_path: Path) -> None:
    _refused(tmp_path / "b.tar.gz", _harmed(bundled, HARMS[harm]))


def test_what_is_cut_off_or_unpacks_to_too_much_is_refused(
    name: str, bundled: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for content in (b"", b"no bundle", bundled[: len(bundled) // 2], bundled[:-4]):
        _refused(tmp_path / "b.tar.gz", content)
    monkeypatch.setattr(bundle, "UNPACKED", 1 << 20)
    _refused(tmp_path / "b.tar.gz", gzip.compress(bytes(2 << 20)))


def test_rows_of_another_schema_write_no_study(name: str, bundled: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(bundled)
    read = bundle.read(tmp_path / "a.tar.gz")
    rows = {**read.rows, "at_trial": [each[:-1] for each in read.rows["at_trial"]]}
    with Store.open(str(tmp_path / "other.db")) as store:
        with pytest.raises(InputError, match="not those of a study"):
            bundle.bring(store, read._replace(rows=rows), builds=False)
        assert queries.names(store) == ()
