import os

import numpy as np
import pytest

from diracflow.storage.container import packed, read_container
from diracflow.storage.files import write_atomically
from diracflow.storage.strict_json import DataFileError, json_text, parsed, plain

ARRAYS = {
    "small": np.arange(3, dtype=np.uint8),
    "large": np.linspace(0, 1, 6).reshape(2, 3),
    "key": np.array([1, 2**32 - 1], np.uint32),
    "none": np.zeros((0, 4)),
    "scalar": np.array(2.5),
    "flags": np.array([True, False]),
    "turned": np.arange(6.0).reshape(2, 3).T,
}


@pytest.fixture
def path(tmp_path):
    write_atomically(tmp_path / "file", [packed("kind", '{"a": "é", "sha256":"0"}', ARRAYS)])
    return tmp_path / "file"


def test_what_is_written_is_read(path):
    header, arrays = read_container(path, "kind")
    assert header == {"a": "é", "sha256": "0"}
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_files_of_another_kind_are_refused(path):
    with pytest.raises(DataFileError, match="not a other file"):
        read_container(path, "other")


def test_every_single_bit_counts(path):
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(DataFileError):
            read_container(path, "kind")


def test_sizes_are_bounded_before_anything_is_read(path, monkeypatch):
    size = path.stat().st_size
    with pytest.raises(DataFileError, match=f"it has {size} bytes"):
        read_container(path, "kind", max_bytes=size - 1)
    with pytest.raises(DataFileError, match="its table has"):
        read_container(path, "kind", max_table=100)
    os.truncate(path, 10 * 2**30)  # without taking room on the disk
    with pytest.raises(DataFileError, match="at most"):
        read_container(path, "kind")


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, message in (("pipe", "a pipe"), ("loop", "symbolic links"), (".", "a directory")):
        with pytest.raises(DataFileError, match=message):
            read_container(tmp_path / name, "kind")
    open_before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    for _ in range(10):
        with pytest.raises(DataFileError):
            read_container(tmp_path, "kind")
    if open_before:
        assert len(os.listdir("/proc/self/fd")) == open_before


@pytest.mark.parametrize(
    "text, message",
    [
        (b'{"a": 1, "a": 2}', "'a' twice"),
        (b"[NaN]", "NaN"),
        (b"[-Infinity]", "-Infinity"),
        (b"[1e999]", "not finite"),
        (b"[" + b"9" * 31 + b"]", "31 digits"),
        (b"[" * 65 + b"]" * 65, "nested more than 64"),
        (b"[" * 10**6, "nested more than 64"),
        (b"[" + b"0," * 10**6 + b"0]", "more than 500000 values"),
        (b'["\\"[[[[' + b"[" * 100, "cannot be read"),
        (b"[1, 2", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_json_that_readers_disagree_about_is_refused(text, message):
    with pytest.raises(DataFileError, match=message):
        parsed(text)


def test_brackets_in_strings_are_no_levels():
    text = "[" * 100 + '"' + "\\" + "]}"
    assert parsed(json_text([text, {"a": [text]}]).encode()) == [text, {"a": [text]}]


def test_words_stand_for_numbers_that_are_not_finite():
    value = {"a": (1, 0.5, np.inf), "b": [-np.inf, np.nan, None, True, "é"]}
    expected = {"a": [1, 0.5, "Infinity"], "b": ["-Infinity", "NaN", None, True, "é"]}
    assert plain(value) == expected
    assert parsed(json_text(value).encode()) == expected
