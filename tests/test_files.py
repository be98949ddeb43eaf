"""A file is written whole or not at all."""

import os
import stat
import threading

import pytest

from psboost.files import replaced


def test_what_was_there_stays_until_all_is_written(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with replaced(path) as file:
        file.write("nä\n")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_bytes() == "nä\n".encode()
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_was_there_stays_if_not_all_can_be_written(tmp_path, error):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(error) as caught, replaced(path, "wb") as file:
        file.write(b"new")
        raise error(28, "No space left on device")
    assert error is KeyboardInterrupt or caught.value.filename == str(path)
    assert path.read_bytes() == b"old" and [each.name for each in tmp_path.iterdir()] == ["a"]


def test_it_has_the_rights_that_any_file_gets(tmp_path):
    with replaced(tmp_path / "a") as file:
        file.write("")
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_link_stays_one(tmp_path):
    (tmp_path / "a").touch()
    (tmp_path / "link").symlink_to("a")
    with replaced(tmp_path / "link") as file:
        file.write("new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "a").read_text() == "new"


def test_what_is_no_file_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    with replaced(tmp_path / "pipe") as file:
        file.write("new")
    reader.join()
    assert read == ["new"] and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_folder_is_none(tmp_path):
    with pytest.raises(IsADirectoryError), replaced(tmp_path):
        pass
    with pytest.raises(FileNotFoundError) as caught, replaced(tmp_path / "no" / "a"):
        pass
    assert caught.value.filename == str(tmp_path / "no" / "a")
