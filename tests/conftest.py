"""What all tests share: MindSpore set up before its first operation, and many examples held in one test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


@pytest.fixture(autouse=True)
def _blocking(request: pytest.FixtureRequest) -> None:
    """Set MindSpore up as the adapter does: it reports errors where they happen only if it is told so at first."""
    if request.node.get_closest_marker("frameworks"):
        from align.models.frameworks.mindspore import _mindspore

        _mindspore()


@pytest.fixture(scope="session")
def assert_each() -> Callable[[Callable[..., None], Collection[Any]], None]:
    """Hold a check against each of the examples, tuples being its arguments: a fault does not hide the next one."""

    def assert_each(check: Callable[..., None], examples: Collection[Any]) -> None:
        assert examples, "there is no example"
        faults = [fault for example in examples if (fault := fault_of(check, example))]
        assert faults == [], f"{len(faults)} of {len(examples)} examples are wrong\n\n" + "\n\n".join(faults)

    return assert_each


def fault_of(check: Callable[..., None], example: Any) -> str:
    """Say what the check has against the example; empty if nothing."""
    try:
        check(*example) if isinstance(example, tuple) else check(example)
    except (Exception, pytest.fail.Exception) as fault:  # noqa: BLE001
        return f"{example}: {type(fault).__name__}: {fault}"
    return ""
