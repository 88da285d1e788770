"""What a run's result may depend on beside the model, its framework and its inputs."""

from __future__ import annotations

import platform

import numpy as np

from align.core.about import __version__
from align.models.thresholds import SEED


def describe_host() -> dict[str, str]:
    """Versions of what is beside the framework, the machine, and the seed that every run starts from."""
    versions = {"mindalign": __version__, "python": platform.python_version(), "numpy": np.__version__}
    return {**versions, "platform": platform.platform(), "seed": str(SEED)}
