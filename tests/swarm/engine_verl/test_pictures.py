"""Pictures in rows and requests, without a model: what is decoded, and where tokens and spans go."""

import io

import pytest

from swarm.server.engine_verl.batches import arrays_of
from swarm.server.engine_verl.pictures import (
    Reading,
    UnreadablePicture,
    all_pictured,
    blank,
    decoded,
    decoded_all,
    expanded,
    is_expanded,
)
from swarm.server.ports import Span, TrainRow

PIL = pytest.importorskip("PIL.Image")
IMAGE = 50


def encoded(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def plain(colour="red", size=(6, 4), mode="RGB"):
    return PIL.new(mode, size, colour)


def one(**changes):
    values = {
        "key": "s1.g/2/0",
        "episode_id": "e",
        "ids": [5, IMAGE, 7, 8, IMAGE, 9],
        "spans": [Span(2, 4, 1.0), Span(5, 6, 1.0)],
        "logprobs": [-0.1, -0.2, -0.3],
        "advantage": 0.5,
        "weight": 0.25,
        "images": [b"a", b"b"],
    }
    return TrainRow(**(values | changes))


def readings(*counts):
    return [Reading((40, *[IMAGE] * count)) for count in counts]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_every_kind_that_the_front_takes_is_decoded_to_rgb(kind):
    found = decoded(encoded(plain(), kind))
    assert (found.mode, found.size) == ("RGB", (6, 4))
    red, green, blue = found.getpixel((3, 2))
    assert red > 240
    assert max(green, blue) < 15


def test_see_through_parts_are_white_and_of_a_moving_picture_the_first_frame_counts():
    clear = PIL.new("RGBA", (2, 1), (255, 0, 0, 0))
    clear.putpixel((1, 0), (0, 0, 255, 255))
    found = decoded(encoded(clear, "PNG"))
    assert [found.getpixel((x, 0)) for x in (0, 1)] == [(255, 255, 255), (0, 0, 255)]
    moving = encoded(plain("red"), "GIF", save_all=True, append_images=[plain("blue")])
    assert decoded(moving).getpixel((0, 0))[0] > 240
    greys = decoded_all([encoded(plain(128, mode="L"), "PNG"), encoded(plain(1, mode="P"), "GIF")])
    assert {found.mode for found in greys} == {"RGB"}


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"not a picture",
        encoded(plain(), "BMP"),
        encoded(plain(size=(64, 64)), "PNG")[:-40],
        encoded(plain(size=(64, 64)), "JPEG")[:300],
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    ],
)
def test_what_cannot_be_decoded_is_one_kind_of_error(bad):
    with pytest.raises(UnreadablePicture, match="cannot be decoded"):
        decoded(bad)


def test_spans_move_behind_the_tokens_of_the_pictures_before_them():
    found = expanded(one(), IMAGE, readings(3, 1))
    assert found.ids == [5, 40, IMAGE, IMAGE, IMAGE, 7, 8, 40, IMAGE, 9]
    assert found.spans == [Span(5, 7, 1.0), Span(9, 10, 1.0)]
    trained = [token for span in found.spans for token in found.ids[span.start : span.end]]
    assert trained == [7, 8, 9]
    assert (found.logprobs, found.images) == ([-0.1, -0.2, -0.3], [b"a", b"b"])


def test_a_span_that_begins_right_behind_a_picture_or_ends_before_one_does_not_grow():
    row = one(ids=[5, IMAGE, 7, IMAGE], spans=[Span(2, 3, 1.0)], logprobs=[-0.1])
    assert expanded(row, IMAGE, readings(2, 2)).spans == [Span(4, 5, 1.0)]


def test_a_row_without_pictures_is_itself_whatever_its_ids():
    row = one(images=[])
    assert expanded(row, IMAGE, []) is row


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ids": [5, 6, 7, 8, IMAGE, 9]}, "2 pictures for 1 image tokens"),
        ({"spans": [Span(1, 4, 1.0)]}, "trains an image token"),
    ],
)
def test_a_row_whose_pictures_do_not_fit_is_refused_with_its_key(changes, words):
    with pytest.raises(ValueError, match=words) as refused:
        expanded(one(**changes), IMAGE, readings(1, 1))
    assert "s1.g/2/0" in str(refused.value)


def test_rows_of_text_get_a_blank_picture_behind_what_they_train():
    text = one(ids=[1, 2, 3], spans=[Span(1, 3, 1.0)], logprobs=[-0.1, -0.2], images=[])
    mine, theirs = all_pictured([one(), text], IMAGE)
    assert mine.images == [b"a", b"b"]
    assert (theirs.ids, theirs.images, theirs.spans) == ([1, 2, 3, IMAGE], [blank()], text.spans)
    assert decoded(blank()).getpixel((0, 0)) == (255, 255, 255)
    assert text.ids == [1, 2, 3]


def test_arrays_carry_the_pictures_of_every_row_of_those_cut_in_two_and_of_those_that_pad():
    known = {b"a": readings(1)[0], b"b": readings(2)[0]}

    def told(row):
        return [known[picture] for picture in row.images]

    warm = one(key="s1.g/0/0", spans=[Span(2, 4, 1.0), Span(5, 6, 0.5)])
    rows = [expanded(row, IMAGE, told(row)) for row in (one(images=[b"b", b"b"]), warm)]
    arrays = arrays_of(rows, multiple=4, readings=told)
    assert arrays.keys == ["s1.g/0/0", "s1.g/0/0", "s1.g/2/0", ""]
    pictured = [[len(reading.ids) - 1 for reading in row] for row in arrays.readings_R]
    assert pictured == [[1, 2], [1, 2], [2, 2], [1, 2]]
    for ids, length, row in zip(arrays.ids_R_T, arrays.length_R, pictured, strict=True):
        assert ids[:length].tolist().count(IMAGE) == sum(row)


def test_arrays_of_text_carry_none():
    rows = [one(images=[])]
    assert arrays_of(rows, readings=lambda _row: []).readings_R == []


@pytest.mark.parametrize(
    ("sent", "found", "same"),
    [
        ([1, 2], [1, 2], True),
        ([1, 2], [1, 3], False),
        ([1, 2], [1, 2, 3], False),
        ([1, IMAGE, 2], [1, 40, IMAGE, IMAGE, 2], True),
        ([1, IMAGE, 2], [1, IMAGE, 2], True),
        ([1, IMAGE, 2], [1, 2], False),
        ([1, IMAGE, 2], [3, IMAGE, 2], False),
        ([1, IMAGE, 2], [1, IMAGE, 3], False),
        ([IMAGE, IMAGE], [IMAGE, IMAGE, IMAGE], True),
        ([IMAGE, IMAGE], [IMAGE], False),
        ([1, IMAGE, 2, 3, IMAGE, 4], [1, IMAGE, IMAGE, 2, 3, IMAGE, 4], True),
        ([1, IMAGE, 2, 3, IMAGE, 4], [1, IMAGE, IMAGE, 2, 9, IMAGE, 4], False),
        ([1, IMAGE, 2, 3, IMAGE, 4], [1, IMAGE, 2, 3, 4], False),
    ],
)
def test_a_prompt_that_was_tokenised_anew_is_noticed(sent, found, same):
    assert is_expanded(sent, found, IMAGE) == same
