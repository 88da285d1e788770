"""What the numbers of training logs are called: `mappings/log_words.toml`, and what a label says by it."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from align.core.about import CHECKOUT, beside_package
from align.errors import MappingRuleError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from pathlib import Path

_FILE = "log_words.toml"
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[\u4e00-\u9fff]+")
_OF_CRITIC = re.compile(r"\bvalue loss\b")  # `loss value` is the loss
CounterKind = Literal["through", "step", "epoch"]
MEAN_RANK = 10  # format: an order of labels, means behind single losses
PART_RANK = 100  # format: an order of labels, parts behind means


@dataclass(frozen=True, slots=True)
class LogWords:
    """The vocabulary by section and key, `loss.plain`: words, or names of several words parted by one space."""

    names: dict[str, frozenset[str]]

    def has(self, key: str, words: tuple[str, ...]) -> bool:
        """Tell whether one of these words is listed."""
        return not self.names[key].isdisjoint(words)


@cache
def log_words() -> LogWords:
    """Read the vocabulary; raises MappingRuleError if the installation lacks it or it is no table of lists."""
    folder = beside_package("mappings", _FILE)
    if folder is None:
        raise MappingRuleError(CHECKOUT / "mappings" / _FILE, MappingRuleError.MISSING)
    return read_log_words(folder / _FILE)


def read_log_words(path: Path) -> LogWords:
    """Read one file of words; raises MappingRuleError."""
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MappingRuleError(path, f"not TOML: {error}") from error
    if not all(isinstance(section, dict) for section in document.values()):
        raise MappingRuleError(path, MappingRuleError.WORD_LISTS)
    return LogWords(
        {f"{name}.{key}": frozenset(words) for name, section in document.items() for key, words in section.items()}
    )


@lru_cache(maxsize=4096)
def words_of(label: str) -> tuple[str, ...]:
    """Part a label into words in lower case: `trainLoss`, `train/loss` and `Train Loss` are alike."""
    return tuple(part for word in _PARTS.findall(label) for part in _unglued(word.lower()))


def _unglued(word: str) -> tuple[str, ...]:
    """Part a word that ends in `loss`: `trainloss`, `softmaxcrossentropyloss`."""
    return (word.removesuffix("loss"), "loss") if word.endswith("loss") and word != "loss" else (word,)


@lru_cache(maxsize=4096)
def loss_rank(label: str) -> int | None:
    """Tell how surely a label names the training loss: 0 surest, from PART_RANK on a part of it; None if no loss."""
    words, known = words_of(label), log_words()
    others = [word for word in words if word not in known.names["loss.words"]]
    if len(others) == len(words) or known.has("loss.never", words) or is_validation(label):
        return None
    means = [word for word in others if word in known.names["loss.means"]]
    parts = [word for word in others if word not in known.names["loss.plain"] and word not in means]
    parts += _OF_CRITIC.findall(" ".join(words))
    return PART_RANK * bool(parts) + MEAN_RANK * bool(means) + len(dict.fromkeys(others))


@lru_cache(maxsize=4096)
def is_loss_name(label: str) -> bool:
    """Tell whether a label names a loss of any phase."""
    words, known = words_of(label), log_words()
    return known.has("loss.words", words) and not known.has("loss.never", words)


@lru_cache(maxsize=4096)
def is_validation(label: str) -> bool:
    """Tell whether a text has a word of another phase than training."""
    return log_words().has("validation.words", words_of(label))


@lru_cache(maxsize=4096)
def counter_kind(label: str) -> CounterKind | None:
    """Tell what a label counts: by its last name, unless a word in front says that it is a setting or a time."""
    known, tokens = log_words(), label.split()
    if not tokens:
        return None
    last, before = " ".join(words_of(tokens[-1])), words_of(" ".join(tokens[:-1]))
    whole = " ".join(words_of(label))
    if {last, whole} & known.names["step.through"]:
        return "through"
    if known.has("counter.never", before):
        return None
    if {last, whole} & known.names["step.names"]:
        return "step"
    return "epoch" if {last, whole} & known.names["epoch.names"] else None


@lru_cache(maxsize=4096)
def is_rate(label: str) -> bool:
    """Tell whether a label names the learning rate."""
    return " ".join(words_of(label)) in log_words().names["rate.names"]
