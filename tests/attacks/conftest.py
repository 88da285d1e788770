"""Builders of torch files without torch: pickles opcode by opcode, zips record by record."""

from __future__ import annotations

import struct
import zipfile
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def whole(value: int) -> bytes:
    data = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def many(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def numbers(values) -> bytes:
    return many(*map(whole, values))


def tensor(shape, stride, count=4, *, offset=0, key="0", storage="FloatStorage", make="_rebuild_tensor_v2") -> bytes:
    reference = many(text("storage"), name("torch", storage), text(key), text("cpu"), whole(count)) + b"Q"
    hooks = name("collections", "OrderedDict") + b")R"
    geometry = (whole(offset), numbers(shape), numbers(stride))
    return name("torch._utils", make) + many(reference, *geometry, b"\x89", hooks) + b"R"


def table(**entries: bytes) -> bytes:
    return b"\x80\x02}(" + b"".join(text(key) + value for key, value in entries.items()) + b"u."


def write_torch(path: Path, pickle: bytes, records: dict[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", pickle)
        for record, data in (records if records is not None else {"data/0": bytes(16)}).items():
            archive.writestr(f"model/{record}", data)
    return path


@pytest.fixture
def build() -> SimpleNamespace:
    return SimpleNamespace(
        text=text, whole=whole, name=name, many=many, numbers=numbers, tensor=tensor, table=table, torch=write_torch
    )
