"""A model's folder without weights that reads pictures, for the toy engine: the shipped tiny model's text, and an image token.

Made without torch. For one with weights see ``swarm.testing.tiny_vision``.
"""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

from swarm.server.model_files import resolve_model

IMAGE = "<image>"
CONTEXT = 2048
TEMPLATE = """\
{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}\
{{ '<image>' if part.type == 'image' else part.text }}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def make_pictured_model(folder: Path, template: str = TEMPLATE) -> str:
    """Write the folder (made when missing) and return its path, as ``model.path`` takes it."""
    source = resolve_model("builtin:tiny-calc")
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((source / "config.json").read_text("utf-8"))
    tokenizer = json.loads((source / "tokenizer.json").read_text("utf-8"))
    image_id = config["vocab_size"]
    tokenizer["added_tokens"].append(
        {**tokenizer["added_tokens"][0], "id": image_id, "content": IMAGE}
    )
    half = {**config, "vocab_size": image_id + 1, "max_position_embeddings": CONTEXT}
    config = {**half, "image_token_id": image_id, "text_config": half}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}', "utf-8")
    (folder / "chat_template.jinja").write_text(template, "utf-8")
    return str(folder)


def png(red: int = 0, green: int = 0, blue: int = 0, *, size: tuple[int, int] = (8, 6)) -> bytes:
    """Return a PNG of one colour (0-255 each), made by hand."""
    width, height = size
    line = b"\0" + bytes((red, green, blue)) * width
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(line * height)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in parts)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
