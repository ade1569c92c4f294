"""The processor of a model's folder: the tiny vision model's, with transformers and Pillow only."""

import json
from types import MethodType

import pytest

from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.picture_reader import PictureReader, reader_of
from swarm.server.engine_verl.pictures import UnreadablePicture, blank
from swarm.server.model_files import resolve_model, text_config
from swarm.server.ports import Span, TrainRow
from swarm.testing.tiny_vision import (
    CONTEXT,
    IMAGE_ID,
    LETTERS,
    TOKENS_A_PICTURE,
    make_tiny_vision,
    picture,
)

pytestmark = [
    pytest.mark.slow,  # transformers is imported
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("transformers")
    return make_tiny_vision(tmp_path_factory.mktemp("vision") / "model")


@pytest.fixture(scope="module")
def processor(folder):
    from transformers import AutoProcessor

    return AutoProcessor.from_pretrained(folder)


@pytest.fixture
def reader(processor):
    return PictureReader(processor, IMAGE_ID)


def row(key, ids, images):
    return TrainRow(
        key, "e", ids, [Span(len(ids) - 1, len(ids), 1.0)], [-0.1], 1.0, 1.0, images=images
    )


def test_a_picture_becomes_the_model_s_tokens_and_tensors(reader):
    red, blue = reader.read(picture("red")), reader.read(picture("blue"))
    assert red.ids == (reader.token,) * TOKENS_A_PICTURE
    assert red.inputs["pixel_values"].shape == (1, 3, 16, 16)
    assert not red.inputs["pixel_values"].equal(blue.inputs["pixel_values"])
    assert set(red.inputs) == {"pixel_values"}
    assert reader.most_tokens == reader.blank_tokens == TOKENS_A_PICTURE


def test_a_picture_is_read_once_until_it_is_forgotten(reader):
    red = reader.read(picture("red"))
    assert reader.read(picture("red")) is red
    reader.forget()
    again = reader.read(picture("red"))
    assert again is not red
    assert again.inputs["pixel_values"].equal(red.inputs["pixel_values"])


def test_rows_of_a_batch_with_pictures_all_have_some_and_a_batch_of_text_is_left_alone(reader):
    text = row("s.g/0/0", [1, 2, 3], [])
    seen = row("s.g/1/0", [1, reader.token, 3], [picture("red")])
    assert reader.rows([text]) == [text]
    short, long = reader.rows([text, seen])
    assert short.ids == [1, 2, 3, *[reader.token] * TOKENS_A_PICTURE]
    assert (short.images, short.spans) == ([blank()], text.spans)
    assert long.ids == [1, *[reader.token] * TOKENS_A_PICTURE, 3]
    assert [one.ids for one in reader.readings(long)] == [(reader.token,) * TOKENS_A_PICTURE]


def test_a_row_s_tensors_are_those_of_its_pictures_in_order(reader):
    red, blue = reader.read(picture("red")), reader.read(picture("blue"))
    both = reader.inputs([blue, red, blue])["pixel_values"]
    assert both.shape == (3, 3, 16, 16)
    assert both[1:2].equal(red.inputs["pixel_values"])
    assert reader.inputs([]) == {}
    assert reader.positions([1, 2, 3], []).tolist() == [0, 1, 2]


def test_whatever_the_tiny_model_says_is_the_same_tokens_when_it_is_read_as_text(processor):
    ids = [*range(IMAGE_ID + 1), *range(IMAGE_ID, -1, -3)]
    assert processor.tokenizer(processor.tokenizer.decode(ids))["input_ids"] == ids
    assert processor.tokenizer.decode(range(len(LETTERS))) == LETTERS


def test_what_the_processor_refuses_is_an_unreadable_picture(processor, reader):
    class Narrow:
        """Takes no picture that is twice as wide as high."""

        tokenizer = processor.tokenizer
        wide = 100

        def __call__(self, *, images, **rest):
            if images[0].width >= self.wide * images[0].height:
                raise ValueError("absolute aspect ratio must be smaller")
            return processor(images=images, **rest)

    narrow = Narrow()
    picky = PictureReader(narrow, reader.token)
    narrow.wide = 2
    with pytest.raises(UnreadablePicture, match=r"does not take a picture of .*aspect ratio"):
        picky.read(picture("red", size=(40, 10)))


def test_a_text_model_has_no_reader_and_a_broken_processor_is_told(tmp_path):
    assert reader_of(resolve_model("builtin:tiny-calc")) is None
    (tmp_path / "config.json").write_text(json.dumps({"image_token_id": 7}), "utf-8")
    assert reader_of(tmp_path) is None
    (tmp_path / "preprocessor_config.json").write_text("{}", "utf-8")
    with pytest.raises(ConfigError, match="processor cannot be used"):
        reader_of(tmp_path)


def test_lengths_are_read_of_the_text_half(folder):
    config = text_config(folder)
    assert (config["max_position_embeddings"], config["image_token_index"]) == (CONTEXT, IMAGE_ID)
    assert text_config(resolve_model("builtin:tiny-calc"))["max_position_embeddings"] == 512


class Turning:
    """Qwen's way: a picture is a grid of 4 x 4 patches, merged into 2 x 2 tokens, and positions have three axes."""

    def __init__(self, tokenizer):
        from transformers.models.qwen2_5_vl import Qwen2_5_VLConfig, Qwen2_5_VLModel

        self.tokenizer = tokenizer
        self.config = Qwen2_5_VLConfig(image_token_id=IMAGE_ID)
        self.get_rope_index = MethodType(Qwen2_5_VLModel.get_rope_index, self)
        self.get_vision_position_ids = MethodType(Qwen2_5_VLModel.get_vision_position_ids, self)

    def __call__(self, **_rest):
        import torch

        return {
            "input_ids": torch.full((1, 4), IMAGE_ID),
            "mm_token_type_ids": torch.ones(1, 4),
            "pixel_values": torch.zeros(16, 12),
            "image_grid_thw": torch.tensor([[1, 4, 4]]),
        }


def test_positions_of_a_model_that_turns_are_those_of_its_own_code_below_the_text_s(processor):
    reader = PictureReader(Turning(processor.tokenizer), IMAGE_ID)
    assert reader.turns
    found = reader.read(picture("red"))
    assert set(found.inputs) == {"pixel_values", "image_grid_thw"}
    ids = [1, *found.ids, 2, 3]
    assert reader.positions(ids, [found]).tolist() == [
        [0, 1, 2, 3, 4, 5, 6],
        [0, 1, 1, 1, 1, 3, 4],
        [0, 1, 1, 2, 2, 3, 4],
        [0, 1, 2, 1, 2, 3, 4],
    ]
    assert reader.positions([1, 2], []).tolist() == [[0, 1]] * 4
    both = reader.inputs([found, found])
    assert (both["pixel_values"].shape, both["image_grid_thw"].tolist()) == (
        (32, 12),
        [[1, 4, 4], [1, 4, 4]],
    )
