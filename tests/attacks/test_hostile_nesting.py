"""Trees that are built to make the search for the weights, or the account of what lies beside them, run without end."""

from __future__ import annotations

import pytest

from align.checkpoints import torch_entries as nested_entries
from align.checkpoints.open_checkpoint import open_checkpoint
from align.errors import NotACheckpointError, UnsupportedCheckpointError

pytestmark = pytest.mark.usefixtures("guarded")

REFUSED = (NotACheckpointError, UnsupportedCheckpointError)
MOST_VISITED = 100_000  # in the place of three million: the search is bounded by the number, whatever it is


@pytest.fixture
def few_visits(monkeypatch):
    monkeypatch.setattr(nested_entries, "MOST_VISITED_VALUES", MOST_VISITED)


def one_tensor(build) -> bytes:
    return build.text("w") + build.tensor((4,), (1,))


def keyed(build, count: int, value: bytes, prefix: str = "k") -> bytes:
    return b"".join(build.text(f"{prefix}{n}") + value for n in range(count))


def test_entries_that_all_hold_one_large_list_are_not_counted_without_end(build, tmp_path, few_visits):
    shared = b"](" + b"K\x01\x85" * 2_000 + b"eq\x000"
    body = b"\x80\x02" + shared + b"}(" + one_tensor(build) + keyed(build, 2_000, b"]h\x00a") + b"u."
    with pytest.raises(NotACheckpointError, match="share their values"):
        open_checkpoint(build.torch(tmp_path / "m.pth", body))


def test_modules_that_all_hold_one_large_list_are_not_searched_without_end(build, tmp_path, few_visits):
    shared = b"](" + b"K\x01\x85" * 2_000 + b"eq\x000"
    state = b"}(" + build.text("_modules") + b"h\x00" + build.text("_parameters") + b"}u"
    module = build.name("any", "Module") + b")\x81" + state + b"b"
    body = b"\x80\x02" + shared + b"}(" + keyed(build, 2_000, module) + b"u."
    with pytest.raises(NotACheckpointError, match="share their values"):
        open_checkpoint(build.torch(tmp_path / "m.pth", body))


def test_keys_that_all_read_alike_are_numbered_in_time(build, tmp_path):
    odd = b"".join(b")\x85" + b"N" for _ in range(50_000))
    body = b"\x80\x02}(" + one_tensor(build) + odd + b"u."
    assert len(open_checkpoint(build.torch(tmp_path / "m.pth", body)).other) == 50_000


def test_dicts_nested_without_end_are_not_followed(build, tmp_path):
    depth = 50_000
    body = b"\x80\x02" + (b"}" + build.text("k")) * depth + b"}" + one_tensor(build) + b"s" * (depth + 1) + b"."
    with pytest.raises(UnsupportedCheckpointError):
        open_checkpoint(build.torch(tmp_path / "m.pth", body))


def test_a_dict_that_holds_itself_is_looked_at_once(build, tmp_path):
    body = b"\x80\x02}q\x00(" + build.text("self") + b"h\x00" + one_tensor(build) + b"u."
    checkpoint = open_checkpoint(build.torch(tmp_path / "m.pth", body))
    assert (list(checkpoint.tensors), checkpoint.other_tensors) == (["w"], {})


def test_thousands_of_entries_are_listed_in_a_few_words(build, tmp_path):
    tensor = b"}" + one_tensor(build) + b"s"
    with pytest.raises(UnsupportedCheckpointError, match="3000 of its entries") as error:
        open_checkpoint(build.torch(tmp_path / "m.pth", b"\x80\x02}(" + keyed(build, 3000, tensor) + b"u."))
    assert len(error.value.message) < 1000


def test_an_ordered_dict_of_what_are_no_pairs_is_no_mapping_of_them(build, tmp_path):
    for items in (b"](NNe", b"](N\x85e", b"]q\x00h\x00a", b"N", b"](" + build.text("ab") + b"e"):
        call = build.name("collections", "OrderedDict") + items + b"\x85R"
        with pytest.raises(REFUSED):
            open_checkpoint(build.torch(tmp_path / "m.pth", b"\x80\x02" + call + b"."))
