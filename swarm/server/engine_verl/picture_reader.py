"""Reads pictures with the processor of a model's own folder, as transformers loads it: their tokens, tensors and positions.

In the driver's process; what it makes travels with the rows to the training workers, as verl's own agent loop does it.
"""

# pyright: reportMissingImports=false
# transformers comes with verl's environment; torch with any.

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.pictures import (
    Reading,
    UnreadablePicture,
    all_pictured,
    blank,
    decoded,
    expanded,
)
from swarm.server.model_files import image_tokens
from swarm.server.ports import TrainRow

PROCESSORS = ("processor_config.json", "preprocessor_config.json")
OF_TOKENS = ("input_ids", "attention_mask", "mm_token_type_ids", "token_type_ids")
"""What a processor returns a token, not a picture."""
LARGEST = ((4096, 4096), (8192, 2048), (2048, 8192))
"""Width and height of the pictures that ``most_tokens`` tries; processors scale down what is larger."""


def reader_of(folder: Path) -> PictureReader | None:
    """Return the reader of a model that reads pictures; None for one that reads text only.

    Raises:
        ConfigError: its processor cannot be loaded, or does not do what is needed of it.
    """
    tokens = image_tokens(json.loads((folder / "config.json").read_text("utf-8")))
    if not tokens or not any((folder / name).is_file() for name in PROCESSORS):
        return None
    try:
        return PictureReader(_processor(folder), tokens[0])
    except Exception as error:
        raise ConfigError(
            f"The model reads pictures, and its processor cannot be used: {type(error).__name__}: {error}",
            hint="Install what it asks for (often torchvision).",
        ) from error


class PictureReader:
    """``token`` is the id that stands for a picture; ``most_tokens`` is how many a picture can become."""

    def __init__(self, processor: Any, token: int) -> None:
        """Try the processor on a few pictures.

        Raises:
            ValueError: a picture gives no image token.
            RuntimeError: pictures of several sizes do not go into one batch, which is how verl trains on them.
        """
        from PIL import Image

        self._processor = processor
        self.token = token
        self._text = processor.tokenizer.convert_ids_to_tokens(token)
        self._known: dict[str, Reading] = {}
        self._typed = False
        """Whether positions are counted from a type a token (transformers from 5.3 on)."""
        least = self.read(blank())
        if token not in least.ids:
            msg = f"a picture becomes {least.ids}, without the image token {token}"
            raise ValueError(msg)
        largest = [self._made(Image.new("RGB", size)) for size in LARGEST]
        self.inputs([least, *largest])
        self.blank_tokens = len(least.ids)
        """Of the picture that ``rows`` adds."""
        self.most_tokens = max(len(reading.ids) for reading in largest)

    @property
    def turns(self) -> bool:
        """Whether positions have several axes (M-RoPE: time, height, width)."""
        return hasattr(self._processor, "get_rope_index")

    def read(self, picture: bytes) -> Reading:
        """Return what a picture becomes; kept until ``forget``, for episodes of a group begin with the same one.

        Raises:
            UnreadablePicture: it cannot be decoded, or the processor refuses it.
        """
        digest = hashlib.sha256(picture).hexdigest()
        if digest not in self._known:
            image = decoded(picture)
            try:
                self._known[digest] = self._made(image)
            except Exception as error:
                msg = f"The model's processor does not take a picture of {image.size}: {error}"
                raise UnreadablePicture(msg) from error
        return self._known[digest]

    def forget(self) -> None:
        """Give the memory of what was read back."""
        self._known.clear()

    def rows(self, rows: Sequence[TrainRow]) -> list[TrainRow]:
        """Return the rows with the tokens of their pictures, when any has pictures; all of them have some then.

        Raises:
            ValueError: pictures and image tokens of a row do not match, or one cannot be read.
        """
        if not any(row.images for row in rows):
            return list(rows)
        full = all_pictured(rows, self.token)
        return [expanded(row, self.token, self.readings(row)) for row in full]

    def readings(self, row: TrainRow) -> list[Reading]:
        """Return what the pictures of a row become."""
        return [self.read(picture) for picture in row.images]

    def inputs(self, readings: Sequence[Reading]) -> dict[str, Any]:
        """Return a row's tensors: those of its pictures, one after the other. No pictures: empty."""
        import torch

        names = dict.fromkeys(name for reading in readings for name in reading.inputs)
        return {name: torch.cat([r.inputs[name] for r in readings]) for name in names}

    def positions(self, ids: Sequence[int], readings: Sequence[Reading]) -> Any:
        """Return a row's positions [T], or for models that turn [4, T]: of the text, then time, height, width."""
        import torch

        plain_T = torch.arange(len(ids))  # noqa: N806
        if not self.turns:
            return plain_T
        if not readings:
            return plain_T.expand(4, -1).clone()
        ids_1_T = torch.tensor([list(ids)])  # noqa: N806
        types = {"mm_token_type_ids": (ids_1_T == self.token).long()} if self._typed else {}
        turned, _ = self._processor.get_rope_index(
            input_ids=ids_1_T,
            attention_mask=torch.ones_like(ids_1_T),
            image_grid_thw=self.inputs(readings).get("image_grid_thw"),
            video_grid_thw=None,
            **types,
        )
        return torch.cat((plain_T[None], turned[:, 0]))

    def _made(self, image: Any) -> Reading:
        made = self._processor(
            text=[self._text],
            images=[image],
            return_tensors="pt",
            text_kwargs={"add_special_tokens": False},
        )
        self._typed = "mm_token_type_ids" in made
        ids = tuple(int(token) for token in made["input_ids"][0])
        return Reading(ids, {name: made[name] for name in made if name not in OF_TOKENS})


def _processor(folder: Path) -> Any:
    """verl's, which knows how the model turns positions; for families that it does not list transformers' own."""
    from transformers import AutoProcessor
    from verl.utils import hf_processor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = hf_processor(str(folder))
    return AutoProcessor.from_pretrained(str(folder)) if found is None else found
