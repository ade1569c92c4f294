"""The lines of the trainers that people use. Formats: verl's console logger, TRL's (transformers') log dictionaries, Lightning's progress bar."""

from __future__ import annotations

import re

from a3r.worker.scrape.steps import ScrapedStep, Scraper, number, scraped

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class VerlScraper:
    """``step:12 - actor/entropy:0.31 - critic/score/mean:0.5 - ...`` (verl.utils.logger, console)."""

    names = {  # noqa: RUF012 - a table
        "critic/score/mean": "reward_mean",
        "critic/rewards/mean": "reward_mean",
        "actor/entropy": "entropy",
        "actor/entropy_loss": "entropy",
        "actor/kl_loss": "kl",
        "actor/ppo_kl": "kl",
        "actor/reward_kl_penalty": "kl",
        "actor/grad_norm": "grad_norm",
        "actor/pg_loss": "loss",
        "actor/loss": "loss",
        "actor/pg_clipfrac": "clip_fraction",
        "actor/lr": "lr",
        "response_length/mean": "response_tokens_mean",
        "response_length/clip_ratio": "truncated_share",
    }
    _head = re.compile(r"(?:^|[\s)])step:\s*(\d+)\s+-\s+(.*)$")
    _pair = re.compile(r"^([\w@/.\-]+):\s*(.+)$")

    def line(self, text: str) -> ScrapedStep | None:
        """One step a line; a Ray prefix (``(TaskRunner pid=12)``) may stand before it."""
        found = self._head.search(_ANSI.sub("", text))
        if found is None:
            return None
        said: dict[str, float] = {}
        for part in found.group(2).split(" - "):
            pair = self._pair.match(part.strip())
            value = number(pair.group(2)) if pair else None
            if pair and value is not None:
                said[pair.group(1)] = value
        return scraped(int(found.group(1)), said, self.names) if said else None


class TrlScraper:
    """``{'loss': 0.02, 'grad_norm': 1.5, 'reward': 0.4, 'epoch': 0.1}`` (transformers' printer callback), without a step: counted.

    A progress bar on the same stream (``12/100 [00:10<...``) tells the step, where there is one.
    """

    names = {  # noqa: RUF012 - a table
        "reward": "reward_mean",
        "rewards/mean": "reward_mean",
        "objective/scores": "reward_mean",
        "loss": "loss",
        "grad_norm": "grad_norm",
        "kl": "kl",
        "objective/kl": "kl",
        "entropy": "entropy",
        "objective/entropy": "entropy",
        "learning_rate": "lr",
        "completions/mean_length": "response_tokens_mean",
        "completion_length": "response_tokens_mean",
        "completions/clipped_ratio": "truncated_share",
        "clip_ratio/region_mean": "clip_fraction",
        "clip_ratio": "clip_fraction",
    }
    _bar = re.compile(r"(\d+)/(\d+) \[\d")
    _dict = re.compile(r"\{'.*\}\s*$")
    _pair = re.compile(r"'([^']+)':\s*('[^']*'|[^,}]+(?:\([^)]*\))?)")

    def __init__(self) -> None:
        """At step 0."""
        self._step = 0
        self._counted = 0

    def line(self, text: str) -> ScrapedStep | None:
        """One logged step a line; the summary at the end (``train_runtime``) and evaluations are none."""
        plain = _ANSI.sub("", text)
        for bar in self._bar.finditer(plain):
            self._step = int(bar.group(1))
        found = self._dict.search(plain)
        if found is None:
            return None
        said: dict[str, float] = {}
        for key, value in self._pair.findall(found.group(0)):
            read = number(value)
            if read is not None:
                said[key] = read
        if (
            not said
            or "train_runtime" in said
            or all(k.startswith(("eval", "epoch")) for k in said)
        ):
            return None
        self._counted = max(self._counted + 1, self._step)
        step = int(said.pop("step", said.pop("global_step", self._counted)))
        return scraped(step, said, self.names)


class LightningScraper:
    """``Epoch 0: 35%|###| 35/100 [00:10<00:20, 3.2it/s, v_num=0, train_loss=0.52]`` (Lightning's progress bar)."""

    names = {  # noqa: RUF012 - a table
        "loss": "loss",
        "train_loss": "loss",
        "train_loss_step": "loss",
        "reward": "reward_mean",
        "train_reward": "reward_mean",
        "grad_norm": "grad_norm",
        "lr": "lr",
    }
    _bar = re.compile(r"Epoch\s+(\d+).*?(\d+)/(\d+) \[[^,\]]*(?:,\s*(.*?))?\]\s*$")
    _pair = re.compile(r"([\w/.\-]+)=([^\s,]+)")

    def line(self, text: str) -> ScrapedStep | None:
        """Steps count over all epochs: epoch x length + position."""
        found = self._bar.search(_ANSI.sub("", text))
        if found is None:
            return None
        epoch, position, length = (int(found.group(n)) for n in (1, 2, 3))
        said: dict[str, float] = {}
        for key, value in self._pair.findall(found.group(4) or ""):
            read = number(value)
            if read is not None and key != "v_num":
                said[key] = read
        return scraped(epoch * length + position, said, self.names) if said else None


SCRAPERS: dict[str, type[Scraper]] = {
    "verl": VerlScraper,
    "trl": TrlScraper,
    "lightning": LightningScraper,
}
"""By name of the trainer."""
