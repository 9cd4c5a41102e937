"""Bounded reads that follow no link, and publication beside the final name."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from forage._files import (
    TEMPORARY,
    FileFault,
    FileReadError,
    OpenDirectory,
    Temporary,
    make_directory,
    open_or_make,
    publish,
    random_name,
    read_regular,
    temporary_owner,
    write_all,
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[OpenDirectory]:
    with OpenDirectory(tmp_path) as directory:
        yield directory


def fault_of(folder: OpenDirectory, name: str, limit: int = 100) -> FileFault:
    with pytest.raises(FileReadError) as caught:
        read_regular(folder, name, limit)
    return caught.value.fault


# --- reading


@pytest.mark.parametrize("size", [0, 1, 99, 100])
def test_a_file_up_to_the_limit_is_read_whole(tmp_path: Path, folder: OpenDirectory, size: int) -> None:
    (tmp_path / "file").write_bytes(b"x" * size)
    assert read_regular(folder, "file", 100) == b"x" * size


def test_every_fault_has_its_name(tmp_path: Path, folder: OpenDirectory) -> None:
    (tmp_path / "large").write_bytes(b"x" * 101)
    (tmp_path / "link").symlink_to("large")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    assert fault_of(folder, "absent") is FileFault.MISSING
    assert fault_of(folder, "large") is FileFault.TOO_LARGE
    for name in ("link", "folder", "fifo"):
        assert fault_of(folder, name) is FileFault.NOT_REGULAR
    assert fault_of(folder, "nul\0name") is FileFault.FAILED
    assert fault_of(folder, "n" * 300) is FileFault.FAILED


def test_a_file_that_is_swapped_while_it_is_read_is_told(tmp_path: Path, folder: OpenDirectory) -> None:
    """A thread replaces the file all the time by others, links and nothing: what is read is one of the files, or a fault."""
    contents = {b"a" * 50, b"b" * 60}
    for content in contents:
        (tmp_path / chr(content[0])).write_bytes(content)
    over = threading.Event()

    def swap() -> None:
        number = 0
        while not over.is_set():
            number += 1
            if number % 4 == 3:
                (tmp_path / "new").symlink_to("a")
            else:
                os.link(tmp_path / ("a" if number % 2 else "b"), tmp_path / "new")
            (tmp_path / "new").rename(tmp_path / "file")
            if number % 5 == 0:
                (tmp_path / "file").unlink()

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[FileFault] = set()
    try:
        for _ in range(4000):
            try:
                assert read_regular(folder, "file", 100) in contents
            except FileReadError as exc:
                seen.add(exc.fault)
    finally:
        over.set()
        thread.join()
    assert seen <= {FileFault.MISSING, FileFault.DISAPPEARED, FileFault.RACED, FileFault.NOT_REGULAR}


def test_a_file_that_grows_is_read_no_further_than_the_limit(tmp_path: Path, folder: OpenDirectory) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    over = threading.Event()

    def grow() -> None:
        while not over.is_set():
            path.write_bytes(b"x")
            with path.open("ab") as file:
                file.write(b"y" * 5000)

    thread = threading.Thread(target=grow)
    thread.start()
    seen: set[FileFault] = set()
    try:
        for _ in range(2000):
            try:
                assert len(read_regular(folder, "file", 4000)) <= 4000
            except FileReadError as exc:
                seen.add(exc.fault)
    finally:
        over.set()
        thread.join()
    assert seen <= {FileFault.TOO_LARGE}


# --- directories


def test_a_directory_is_opened_once_and_closed_once(tmp_path: Path) -> None:
    with OpenDirectory(tmp_path) as directory:
        fd = directory.fd
    directory.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_links_are_followed_only_when_asked(tmp_path: Path, folder: OpenDirectory) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        OpenDirectory(tmp_path / "link")
    OpenDirectory(tmp_path / "link", follow=True).close()
    OpenDirectory("real", inside=folder).close()
    assert make_directory(folder, "new")
    assert not make_directory(folder, "new")
    assert not make_directory(folder, "link")
    assert not folder.unlink("absent")


def test_missing_parents_are_made(tmp_path: Path) -> None:
    for _ in range(2):
        open_or_make(tmp_path / "a" / "b" / "c").close()
    assert (tmp_path / "a" / "b" / "c").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        open_or_make(tmp_path / "file")


# --- publishing


def test_what_is_published_is_there_whole_and_alone(tmp_path: Path, folder: OpenDirectory) -> None:
    assert publish(folder, "file", [b"one", b"", b"two"])
    assert (tmp_path / "file").read_bytes() == b"onetwo"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    assert not publish(folder, "file", [b"other"])
    assert (tmp_path / "file").read_bytes() == b"onetwo"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_failed_write_leaves_nothing(tmp_path: Path, folder: OpenDirectory) -> None:
    def parts() -> Iterator[bytes]:
        yield b"half"
        raise OSError("the source of the bytes failed")

    with pytest.raises(OSError, match="source of the bytes"):
        publish(folder, "file", parts())
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_can_take_the_place_of_a_file(tmp_path: Path, folder: OpenDirectory) -> None:
    (tmp_path / "file").write_text("old")
    temporary = Temporary(folder, "file", [b"new"], start_writing=True)
    temporary.sync()
    temporary.replace("file")
    temporary.discard()
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_temporary_tells_who_wrote_it(tmp_path: Path, folder: OpenDirectory) -> None:
    temporary = Temporary(folder, "x.json", [])
    (name,) = (p.name for p in tmp_path.iterdir())
    assert name.startswith("x.json.")
    assert temporary_owner(name) == os.getpid()
    temporary.discard()
    temporary.discard()
    assert list(tmp_path.iterdir()) == []
    assert temporary_owner("x.json") is None
    assert TEMPORARY.search("x.json.077.00000000-0000-4000-8000-000000000000.tmp") is None


def test_random_names_are_version_four_uuids() -> None:
    names = {random_name() for _ in range(500)}
    assert len(names) == 500
    assert all(re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", name) for name in names)


def test_everything_is_written_also_through_a_narrow_pipe() -> None:
    reading, writing = os.pipe()
    data = os.urandom(300_000)
    received = bytearray()

    def read() -> None:
        while part := os.read(reading, 1000):
            received.extend(part)

    thread = threading.Thread(target=read)
    thread.start()
    write_all(writing, data)
    os.close(writing)
    thread.join()
    os.close(reading)
    assert received == data
