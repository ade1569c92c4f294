import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from swarm.server.pictures.headers import read_header
from swarm.testing.pictured_model import png

TYPES = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "GIF": "image/gif",
    "WEBP": "image/webp",
}


def encoded(kind: str, mode: str = "RGB", size: tuple[int, int] = (300, 70), **options) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size).save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize("size", [(1, 1), (300, 70), (17, 5000)])
@pytest.mark.parametrize("kind", TYPES)
def test_type_and_size_are_those_that_an_outside_library_wrote(kind, size):
    assert read_header(encoded(kind, size=size)) == (TYPES[kind], *size)


@pytest.mark.parametrize(
    "data",
    [
        encoded("JPEG", progressive=True, exif=b"Exif\0\0" + b"x" * 500),
        encoded("JPEG", mode="L"),
        encoded("WEBP", lossless=True),
        encoded("WEBP", mode="RGBA"),
        encoded("WEBP", save_all=True, append_images=[Image.new("RGB", (300, 70), "red")]),
        encoded("GIF", save_all=True, append_images=[Image.new("RGB", (300, 70), "red")]),
        encoded("PNG", mode="P", optimize=True),
        encoded("PNG", mode="I;16"),
    ],
)
def test_every_way_to_encode_one_is_understood(data):
    header = read_header(data)
    assert header is not None
    assert header[1:] == (300, 70)


@pytest.mark.parametrize("kind", TYPES)
def test_one_that_lost_its_end_is_no_picture(kind):
    data = encoded(kind)
    assert read_header(data[: len(data) // 2]) is None
    assert read_header(data[:9]) is None


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.7", b"BM" + b"\0" * 60],
)
def test_other_files_are_no_pictures(data):
    assert read_header(data) is None


def test_a_picture_of_no_pixels_is_none():
    assert read_header(png(size=(0, 4))) is None


@given(st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF"]), st.binary())
def test_whatever_follows_a_known_beginning_is_judged_without_an_error(starts, rest):
    read_header(starts + rest)


def test_a_jpeg_of_nothing_but_padding_is_given_up_soon():
    assert read_header(b"\xff" * 8_000_000 + b"\xd9") is None
    assert read_header(b"\xff\xd8\xff" + b"\x01\xff" * 4_000_000 + b"\xd9") is None
