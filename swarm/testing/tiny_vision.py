"""A tiny model that reads pictures, made within a second: LLaVA's layout (CLIP, Llama), random weights, one token a letter.

``python -m swarm.testing.tiny_vision --out DIR``. It knows nothing; it answers differently to different pictures, which is what
tests of the way of a picture need. A picture becomes ``TOKENS_A_PICTURE`` tokens. It speaks printable ASCII only, so that whatever
it samples is the same tokens again when it is read as text: vLLM does that where it runs a model in transformers' code.
"""

# pyright: reportMissingImports=false
# transformers comes with verl's environment.

from __future__ import annotations

import argparse
import io
import math
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

IMAGE = "<image>"
START, END = "<|endoftext|>", "<|im_end|>"
LETTERS = "\n" + "".join(map(chr, range(32, 127)))
CONTROL = (START, "<|im_start|>", END, IMAGE)
IMAGE_ID = len(LETTERS) + CONTROL.index(IMAGE)
SIDE, PATCH = 16, 8
TOKENS_A_PICTURE = (SIDE // PATCH) ** 2
CONTEXT = 512
TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else -%}
{% for part in message.content %}{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}
{%- endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}
"""


def make_tiny_vision(folder: Path, *, seed: int = 0) -> Path:
    """Write a Hugging Face folder (made when missing; files of these names are replaced) and return it.

    The same seed gives the same weights. Needs torch, transformers and Pillow, not torchvision.
    """
    library = _library()
    folder.mkdir(parents=True, exist_ok=True)
    _model(library, seed).save_pretrained(folder)
    _processor(library).save_pretrained(folder)
    return folder


def picture(colour: str, *, size: tuple[int, int] = (24, 20)) -> bytes:
    """Return a PNG of one colour; ``colour`` is a name of CSS or ``#rrggbb``."""
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, "PNG")
    return out.getvalue()


def _library() -> Tokenizer:
    written = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = [written.pre_tokenize_str(letter)[0][0] for letter in LETTERS]
    library = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    library.pre_tokenizer = written
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken(text, normalized=False) for text in CONTROL])
    return library


def _model(library: Tokenizer, seed: int) -> Any:
    import torch
    from transformers import (
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
    )

    vision = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=SIDE,
        patch_size=PATCH,
        projection_dim=32,
    )
    text = LlamaConfig(
        vocab_size=library.get_vocab_size(),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        bos_token_id=library.token_to_id(START),
        eos_token_id=library.token_to_id(END),
        pad_token_id=library.token_to_id(START),
        tie_word_embeddings=False,
    )
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=IMAGE_ID,
        image_seq_length=TOKENS_A_PICTURE,
        vision_feature_layer=-1,
        tie_word_embeddings=False,
    )
    torch.manual_seed(seed)
    model = LlavaForConditionalGeneration(config)
    for parameter in model.parameters():
        # Large enough that a picture shows in the answers.
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=1 / math.sqrt(parameter.shape[1]))
    return model


def _processor(library: Tokenizer) -> Any:
    from transformers import LlavaProcessor, PreTrainedTokenizerFast
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=library,
        eos_token=END,
        pad_token=START,
    )
    return LlavaProcessor(
        image_processor=CLIPImageProcessorPil(
            size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}
        ),
        tokenizer=tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    )


def main() -> None:
    """Read the command line and make the folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    make_tiny_vision(parser.parse_args().out)


if __name__ == "__main__":
    main()
