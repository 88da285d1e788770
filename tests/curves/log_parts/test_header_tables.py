"""Tables in text, whose rows bear no names: columns by the line above them, rows without a number in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align.curves.compare_losses import LogReading
from align.curves.place_on_axis import place_on_axis
from align.errors import EmptyLogError, SeveralLossesError

if TYPE_CHECKING:
    from pathlib import Path

    from align.curves.loss_log import LossLog

LOSSES = [2.5, 2.25, 2.375, 2.0]


def _table(header: str, row: str, first: int = 1) -> str:
    rows = (row.format(n=first + place, s=10 * (first + place), loss=loss) for place, loss in enumerate(LOSSES))
    return header + "".join(one + "\n" for one in rows)


TABLES = {
    "spaces": _table(
        "  epoch    train_loss    valid_acc    dur\n-------  ------------  -----------  ------\n",
        "      {n}        {loss}       0.6000  0.0344",
    ),
    "wide": _table(
        "epoch     train_loss  valid_loss  time    \n", "{n}         {loss}       0.44        00:05     ", 0
    ),
    "bars": _table("| Training Loss | Epoch | Step |\n|:---:|:---:|:---:|\n", "| {loss} | {n}.0 | {n} |"),
    "box": _table("┏━━━┳━━━┓\n┃ Epoch ┃ Train loss ┃\n┡━━━╇━━━┩\n", "│ {n}     │ {loss}       │"),
    "sum": _table(
        "     Epoch   gpu_mem       box       obj     total    labels\n",
        "   {n}/99   5.1G   {loss}  0.25  0.25  26: 100%|####| 295/295 [12:51<00:00,  2.62s/it]",
    ).replace("0.25  0.25", "0.25  TOTAL"),
    "other names": _table("iter_num,train/loss_total,lr\n", "{n},{loss},0.1", 0),
    "index": _table(",loss,accuracy,val_loss\n", "{n},{loss},0.9,0.5", 0),
    "no step": _table("training_loss, training_acc, time\n", "{loss},0.4,0.2"),
    "no step, tabs": _table("total loss\tscore loss\tctc loss\n", "{loss}\t0.2\t9.2\t"),
}
for _loss in LOSSES:
    TABLES["sum"] = TABLES["sum"].replace(f"{_loss}  0.25  TOTAL", f"{_loss - 0.25}  0.25  {_loss}")


def _read(folder: Path, text: str) -> LossLog:
    path = folder / "train.log"
    path.write_text(text, encoding="utf-8")
    return LogReading().read(path)


def _points(log: LossLog) -> list[tuple[int, float]]:
    curve = place_on_axis(log)
    return list(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))


@pytest.mark.parametrize("name", TABLES)
def test_columns_go_by_the_names_above_them(name: str, tmp_path: Path) -> None:
    log = _read(tmp_path, TABLES[name])
    assert _points(log) == list(enumerate(LOSSES, 1))
    assert any(note.startswith("columns are read by their names in line") for note in log.notes)


@pytest.mark.parametrize("name", TABLES)
def test_a_second_copy_foreign_lines_and_a_cut_end_change_nothing(name: str, tmp_path: Path) -> None:
    text = TABLES[name]
    mixed = text.replace("\n", "\n\nWARNING: the loader is slow\n") if name != "box" else text
    assert _points(_read(tmp_path, text + text)) == list(enumerate(LOSSES, 1))
    assert _points(_read(tmp_path, mixed)) == list(enumerate(LOSSES, 1))
    assert _points(_read(tmp_path, text + text.splitlines()[-2][:3])) == list(enumerate(LOSSES, 1))


@pytest.mark.parametrize("name", ["no step", "no step, tabs"])
def test_a_table_of_which_each_line_is_printed_twice_is_as_long_as_the_table(name: str, tmp_path: Path) -> None:
    text = "".join(line * 2 for line in TABLES[name].splitlines(keepends=True))
    assert _points(_read(tmp_path, text)) == list(enumerate(LOSSES, 1))


def test_rows_without_a_number_say_what_they_are_taken_as(tmp_path: Path) -> None:
    steps = _read(tmp_path, TABLES["no step"])
    epochs = _read(tmp_path, TABLES["no step"].replace("time", "val_loss"))
    assert (steps.counting, epochs.counting) == ("global step", "epoch")
    assert any("each row, in the order of lines, is taken as an epoch" in note for note in epochs.notes)


NO_TABLES = {
    "shuffled": "\n".join(TABLES["no step"].splitlines()[::-1]) + "\n",
    "insurance": _table("policy,premium,loss,region\n", "P{n},200,{loss},west"),
    "an invoice": _table("item qty price total\n", "{n} 2 3.5 {loss}"),
    "houses": _table("id,price,sqft,total_rooms\n", "{n},{loss},110,4"),
    "one row": "epoch  train_loss  acc\n1  0.5  0.3\n",
}


@pytest.mark.parametrize("name", NO_TABLES)
def test_tables_of_other_things_and_rows_in_no_order_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(EmptyLogError):
        _read(tmp_path, NO_TABLES[name])


def test_parts_of_a_loss_without_a_whole_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SeveralLossesError, match="line 2 shows: box_loss, obj_loss"):
        _read(tmp_path, _table("  Epoch    GPU_mem   box_loss   obj_loss\n", "  {n}/99   4.3G   {loss}   0.5"))
