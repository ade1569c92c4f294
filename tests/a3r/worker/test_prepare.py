"""What reaches a host as a client's code: what was reviewed, and nothing else."""

import io
import tarfile

import pytest

from a3r.core.errors import BlueprintError
from a3r.core.hashing import bytes_hash
from a3r.worker.folder import AttemptFolder
from a3r.worker.prepare import unpack_client


def with_a_link(data: bytes) -> bytes:
    """The same tar with a link that no tree hash sees, because it leads nowhere."""
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(data)) as old, tarfile.open(fileobj=out, mode="w") as new:
        for member in old:
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
        link = tarfile.TarInfo("data.json")
        link.type, link.linkname = tarfile.SYMTYPE, "later"
        new.addfile(link)
    return out.getvalue()


def test_an_artifact_with_more_than_plain_files_is_refused_and_leaves_nothing(lab, tmp_path):
    blueprint = lab.blueprint()
    good = lab.hub.artifacts[lab.artifact]
    bad = with_a_link(good)
    spec = lab.spec(blueprint).model_copy(update={"client_artifact": bytes_hash(bad)})
    folder = AttemptFolder(tmp_path / "a-1")
    folder.path.mkdir()
    with pytest.raises(BlueprintError, match="no plain file"):
        unpack_client(folder, spec, blueprint, lambda _sha: bad)
    assert not folder.client.exists()
    unpack_client(folder, lab.spec(blueprint), blueprint, lambda _sha: good)
    assert [p.name for p in folder.client.iterdir()] == ["client.py"]
