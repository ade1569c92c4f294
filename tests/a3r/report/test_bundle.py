"""A bundle holds everything behind a report, without secrets, and proves itself without a workspace."""

import contextlib
import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from a3r.blueprints.artifact import pack_tree
from a3r.core.errors import Conflict, VerificationFailed
from a3r.core.hashing import bytes_hash, content_hash, tree_hash
from a3r.core.llm import ModelMessage, ModelReply, ModelRequest, Spent
from a3r.report.bundle.archive import read_archive, write_archive
from a3r.report.bundle.check import verify_bundle
from a3r.report.bundle.contents import gather
from a3r.report.bundle.redaction import Redactor
from a3r.report.verify import Check
from a3r.report.write import write_report
from a3r.store.store import Store
from a3r.testing.stored import StoredCampaign, blueprint

KEY = "sk-" + "live0123456789abcdefgh"
KNOWN = "correct-horse-battery"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredCampaign]:
    home = tmp_path_factory.mktemp("home")
    client = home / "client"
    client.mkdir()
    (home / ".a3r").mkdir()
    (client / "client.py").write_text("print('hello')\n")
    with Store.open(home / ".a3r" / "a3r.db") as store:
        made = StoredCampaign(store, store.put_artifact(pack_tree(client)))
        (row,) = made.stage("coarse", [blueprint(4, (1, 2), tree_hash(client))])
        for run, right in zip(store.ensure_runs(row.id), (8, 9), strict=True):
            made.succeed(run.id, run.seed, right)
        for number, said in enumerate(("plan well", f"use {KEY}"), start=1):
            request = ModelRequest(messages=(ModelMessage(role="user", content=said),))
            reserve = Spent(usd=0.1, tokens=100)
            call = store.reserve_call(
                made.id, f"{made.id}/plan/{number}", "plan", "some/model", request, reserve, lambda _: None
            )  # fmt: skip
            reply = ModelReply(
                text=f"the key is {KNOWN}" if number == 2 else "yes",
                model="some/model",
                prompt_tokens=3,
                completion_tokens=2,
            )
            store.settle_call(call.id, reply, 0.01)
        store.add_decision(made.id, None, "conclude: answered", "enough", {}, 1020.0)
        yield made


@pytest.fixture(scope="module")
def packed(stored: StoredCampaign, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle's folder, before it is packed."""
    home = tmp_path_factory.mktemp("packed")
    report = write_report(stored.records(), home / "report")
    (home / "bundle").mkdir()
    gather(stored.store, stored.id, report, home / "bundle", [KNOWN])
    return home / "bundle"


@pytest.fixture
def bundle(packed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(packed, tmp_path / "bundle"))


def seal(bundle: Path) -> None:
    """Make the manifest fit the files again, as somebody who cheats would."""
    manifest: dict[str, Any] = json.loads((bundle / "manifest.json").read_bytes())
    manifest["sha256"] = {
        p.relative_to(bundle).as_posix(): bytes_hash(p.read_bytes())
        for p in bundle.rglob("*")
        if p.is_file() and p != bundle / "manifest.json"
    }
    (bundle / "manifest.json").write_text(json.dumps(manifest))


def last(bundle: Path) -> Check:
    target = bundle.with_name(f"{len(list(bundle.parent.iterdir()))}.tar.gz")
    write_archive(bundle, target)
    return verify_bundle(target).checks[-1]


def test_a_whole_bundle_verifies_far_from_its_workspace(bundle: Path, tmp_path: Path):
    write_archive(bundle, tmp_path / "study.tar.gz")
    report = verify_bundle(tmp_path / "study.tar.gz")
    assert report.ok, report.checks[-1]
    assert report.level == "self-consistent"
    details = {c.name: c.detail for c in report.checks}
    assert details["blueprints equal the records"] == "1 blueprints"
    assert details["clients have the trees that the records name"] == "1 trees"
    told = details["transcripts are of the recorded calls"]
    assert told.startswith("1 of 2 requests hash to what was journalled")
    assert "report.md equals its render" in details


def test_a_bundle_from_before_a_setting_existed_still_verifies(
    stored: StoredCampaign, bundle: Path, tmp_path: Path
):
    records = stored.records()
    (now,) = records.blueprints
    document = json.loads(json.dumps(now.document))
    del document["servers"][0]["train"]["verl"]["adv_estimator"]
    hashed = {"content_hash": content_hash(document)}
    before = now.model_copy(update={"document": document, **hashed})
    reviews = tuple(review.model_copy(update=hashed) for review in records.reviews)
    shutil.rmtree(bundle / "report")
    earlier = records.model_copy(update={"blueprints": (before,), "reviews": reviews})
    write_report(earlier, bundle / "report")
    seal(bundle)
    assert before.content_hash != now.content_hash
    write_archive(bundle, tmp_path / "study.tar.gz")
    report = verify_bundle(tmp_path / "study.tar.gz")
    assert report.ok, report.checks[-1]


def test_the_same_campaign_packs_to_the_same_bytes(bundle: Path, tmp_path: Path):
    for name in ("a.tar.gz", "b.tar.gz"):
        write_archive(bundle, tmp_path / name)
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    with pytest.raises(Conflict):
        write_archive(bundle, tmp_path / "a.tar.gz")


def test_no_secret_is_in_any_file(bundle: Path):
    for path in bundle.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes()
            assert KNOWN.encode() not in path.read_bytes()
    lines = (bundle / "transcripts.jsonl").read_text().splitlines()
    assert [json.loads(line)["redacted"] for line in lines] == [False, True]


def _other_code(bundle: Path) -> None:
    (tree,) = (bundle / "clients").iterdir()
    folder = bundle.parent / "other"
    folder.mkdir()
    (folder / "client.py").write_text("print('evil')\n")
    tree.write_bytes(pack_tree(folder))


def _other_blueprint(bundle: Path) -> None:
    (path,) = (bundle / "blueprints").iterdir()
    text = path.read_text()
    assert "purpose: see" in text
    path.write_text(text.replace("purpose: see", "purpose: seen"))


def _other_transcript(bundle: Path) -> None:
    path = bundle / "transcripts.jsonl"
    path.write_text(path.read_text().replace("plan well", "plan ill"))


def _other_campaign(bundle: Path) -> None:
    path = bundle / "manifest.json"
    path.write_text(path.read_text().replace('"campaign": "', '"campaign": "other-', 1))


def _fewer_calls(bundle: Path) -> None:
    path = bundle / "transcripts.jsonl"
    path.write_text(path.read_text().splitlines()[0] + "\n")


def _number(bundle: Path) -> None:
    path = bundle / "report" / "report.md"
    path.write_text(path.read_text().replace("+0.650", "+0.950"))


def _stray_log(bundle: Path) -> None:
    (bundle / "logs" / "nobody").mkdir(parents=True)
    (bundle / "logs" / "nobody" / "client.log").write_text("x")


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (_other_code, "clients have the trees that the records name"),
        (_other_blueprint, "blueprints equal the records"),
        (_other_transcript, "transcripts are of the recorded calls"),
        (_fewer_calls, "transcripts are of the recorded calls"),
        (_other_campaign, "bundle and report are of one campaign"),
        (_number, "manifest"),
        (_stray_log, "logs are of the recorded attempts"),
    ],
)
def test_what_was_changed_is_named_even_when_the_manifest_is_made_to_fit(
    bundle: Path, change: Callable[[Path], None], check: str
):
    change(bundle)
    if change is not _other_campaign:
        assert last(bundle).name == "bundle's manifest"
    seal(bundle)
    found = last(bundle)
    assert (found.name, found.ok) == (check, False)


def _tar(*members: tuple[str, bytes, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data, kind in members:
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(data), kind, "/etc/passwd"
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def _greedy_header() -> bytes:
    """A few kilobytes whose first header says that it is 3 GiB long, and has the beginning of that."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 3 << 30
    return gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) + bytes(1 << 20))


@pytest.mark.parametrize(
    "data",
    [
        _greedy_header(),
        _tar(("manifest.json", b"[" * 200_000, tarfile.REGTYPE)),
        _tar(("manifest.json", b'{"format": 1e999}', tarfile.REGTYPE)),
        b"",
        b"no gzip at all",
        gzip.compress(b"no tar at all" * 100),
        _tar(("../out", b"x", tarfile.REGTYPE)),
        _tar(("/abs", b"x", tarfile.REGTYPE)),
        _tar(("a\\b", b"x", tarfile.REGTYPE)),
        _tar(("link", b"", tarfile.SYMTYPE)),
        _tar(("a", b"x", tarfile.REGTYPE), ("./a", b"y", tarfile.REGTYPE)),
        _tar(("a", b"x", tarfile.REGTYPE), ("a/b", b"y", tarfile.REGTYPE)),
        _tar(("manifest.json", b"[]", tarfile.REGTYPE)),
        _tar(("manifest.json", b'{"format": 9, "sha256": {}}', tarfile.REGTYPE)),
        _tar(("manifest.json", b"x" * 5000, tarfile.REGTYPE))[:-40],
    ],
    ids=lambda _data: "file",  # gzip holds the time: parallel workers must agree on the names
)
def test_a_strangers_file_is_refused_in_words_and_writes_nothing_outside(
    data: bytes, tmp_path: Path
):
    file = tmp_path / "x.tar.gz"
    file.write_bytes(data)
    report = verify_bundle(file)
    assert not report.ok
    assert report.level == "nothing"
    (tmp_path / "in").mkdir()
    with contextlib.suppress(VerificationFailed):
        read_archive(file, tmp_path / "in")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "x.tar.gz"]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"key {KEY} end", "key [redacted] end"),
        ('{"api_key": "abcdef123456"}', '{"api_key": "[redacted]"}'),
        ("OPENAI_API_KEY=abcdef123456 next", "OPENAI_API_KEY=[redacted] next"),
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer [redacted]"),
        ("curl https://user:hunter22@host/x", "curl https://[redacted]@host/x"),
        ("token ghp_" + "a" * 20, "token [redacted]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----.", "[redacted]."),
        (f"the {KNOWN}", "the [redacted]"),
        ("max_tokens=4096 and task-skill-based-learning", None),
        ("prompt_tokens: 123456, secrets of the trade", None),
        ("plain words", None),
    ],
)
def test_redaction_takes_secrets_and_leaves_the_rest(text: str, left: str | None):
    redactor = Redactor([KNOWN, "abc", ""])
    assert redactor.text(text) == (text if left is None else left)
    assert redactor.count == (0 if left is None else 1)
    assert redactor.text(redactor.text(text)) == redactor.text(text)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "part", ["a-", "eyJ-", "eyJaaaaaaaa.", "-----BEGIN PRIVATE KEY-----", "://a:", "password "]
)
def test_redaction_of_a_log_of_repeats_takes_time_in_proportion_to_its_length(part: str):
    assert len(Redactor((KNOWN,)).text(part * 20_000 + "\n")) > 0


def test_redaction_keeps_bytes_that_are_no_text_and_the_value_of_a_secret_key_goes_whole():
    raw = b"\xff\xfe " + KEY.encode() + b" \x80"
    assert Redactor().raw(raw) == b"\xff\xfe [redacted] \x80"
    assert Redactor().data({"password": "a b c d e f", "n": [1, None, {"x": KEY}]}) == {
        "password": "[redacted]",
        "n": [1, None, {"x": "[redacted]"}],
    }
