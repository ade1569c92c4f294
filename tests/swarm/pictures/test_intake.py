import base64

import pytest

from swarm.protocol.errors import RequestError
from swarm.server.pictures import intake as limits
from swarm.server.pictures.intake import Album, Intake
from swarm.testing.pictured_model import png


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture
def intake() -> Intake:
    return Intake(Album())


def test_a_data_url_becomes_a_part_without_its_bytes(intake):
    data = png(1, size=(8, 6))
    part = intake.url(f"data:image/jpeg;base64,{coded(data)}", "here")
    assert part["media_type"] == "image/png"  # as the bytes say, not the sender
    assert (part["bytes"], part["width"], part["height"]) == (len(data), 8, 6)
    assert intake.found[part["sha256"]].data == data


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://example.org/a.png", "is not a data: URL"),
        ("http://169.254.169.254/latest", "is not a data: URL"),
        ("file:///etc/passwd", "is not a data: URL"),
        ("", "is not a data: URL"),
        (None, "is not a data: URL"),
        (7, "is not a data: URL"),
        ("data:image/png,abc", "without base64"),
        ("data:image/png;base64", "without base64"),
        ("data:image/png;base64,@@@@", "is not base64"),
        ("data:image/png;base64,AAA", "is not base64"),
        ("data:image/png;base64,ünï", "is not base64"),
        ("data:image/png;base64,", "is no picture"),
        ("data:image/png;base64,AAAA", "is no picture"),
    ],
)
def test_what_is_no_picture_is_refused_with_its_place_and_a_hint(intake, url, why):
    with pytest.raises(RequestError, match=why) as caught:
        intake.url(url, "messages[0]")
    assert caught.value.message.startswith("messages[0] ")
    assert caught.value.hint
    assert not intake.found


def test_line_breaks_in_base64_are_let_through(intake):
    data = png(3)
    part = intake.base64(base64.encodebytes(data).decode(), "here")
    assert intake.found[part["sha256"]].data == data


def test_a_header_that_claims_a_billion_pixels_is_refused_undecoded(intake):
    bomb = png(size=(1, 1)).replace(b"\0\0\0\1\0\0\0\1", b"\0\1\0\0\0\1\0\0")
    with pytest.raises(RequestError, match="65536 x 65536 pixels"):
        intake.base64(coded(bomb), "here")


def test_one_picture_too_many_is_refused(intake):
    text = coded(png(1))
    for _ in range(limits.MOST):
        intake.base64(text, "here")
    with pytest.raises(RequestError, match=f"at most {limits.MOST}"):
        intake.base64(text, "here")


def test_too_many_bytes_are_refused_before_and_after_decoding(intake):
    for size in (limits.MOST_BYTES + 1, limits.MOST_BYTES * 2):
        with pytest.raises(RequestError, match="larger than"):
            intake.base64(coded(b"\0" * size), "here")


def test_pixels_of_all_pictures_add_up_and_one_that_comes_again_counts_once(intake):
    wide = (1, limits.MOST_PIXELS)
    claims = [png(i, size=(1, 1)).replace(b"\0\0\0\1\0\0\0\1", _sides(*wide)) for i in range(5)]
    for claim in claims[:4] * 2:
        intake.base64(coded(claim), "here")
    with pytest.raises(RequestError, match="brings the request to"):
        intake.base64(coded(claims[4]), "here")


def _sides(width: int, height: int) -> bytes:
    return width.to_bytes(4, "big") + height.to_bytes(4, "big")


def test_the_same_picture_lies_in_memory_once_while_anybody_holds_it():
    album = Album()
    first, second = Intake(album), Intake(album)
    digest = first.base64(coded(png(1)), "here")["sha256"]
    second.base64(coded(png(1)), "there")
    assert first.found[digest] is second.found[digest]
