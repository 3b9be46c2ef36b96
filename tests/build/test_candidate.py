"""What may be handed in, and how everything else is refused."""

from __future__ import annotations

import os
import time

import pytest

from cudahercules.build import candidate as module
from cudahercules.build.candidate import MAX_BYTES, from_text, load_candidate
from cudahercules.errors import UsageError


def refusal(path) -> str:
    with pytest.raises(UsageError) as error:
        load_candidate(path)
    return str(error.value)


def test_a_file_becomes_a_candidate_of_its_own_name(tmp_path):
    file = tmp_path / "fast.cu"
    file.write_text("// größer\n")
    loaded = load_candidate(file)
    assert loaded.name == "fast.cu"
    assert [(f.name, f.text) for f in loaded.files] == [("fast.cu", "// größer\n")]


def test_a_directory_brings_its_sources_and_leaves_the_rest(tmp_path):
    (tmp_path / "include").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("b.cu", "a.cu", "include/tile.cuh", "README.md", "solve.h", ".git/x.cu"):
        (tmp_path / name).write_text(f"// {name}\n")
    loaded = load_candidate(tmp_path)
    assert [f.name for f in loaded.files] == ["a.cu", "b.cu", "include/tile.cuh"]
    assert [f.name for f in loaded.units] == ["a.cu", "b.cu"]
    assert loaded.name == tmp_path.name


def test_the_hash_covers_names_and_contents_only(tmp_path):
    one = from_text("one", {"a.cu": "x", "b.cuh": "y"})
    assert one.sha256 == from_text("two", {"b.cuh": "y", "a.cu": "x"}).sha256
    assert one.sha256 != from_text("one", {"a.cu": "xy", "b.cuh": ""}).sha256
    assert one.sha256 != from_text("one", {"a.cu": "x", "c.cuh": "y"}).sha256
    assert one.sha256 == from_text("one", {"a.cu": "x", "b.cuh": "y", "solve.h": "anything"}).sha256


def test_a_byte_order_mark_is_dropped(tmp_path):
    file = tmp_path / "a.cu"
    file.write_bytes(b"\xef\xbb\xbfint x;")
    assert load_candidate(file).files[0].text == "int x;"


@pytest.mark.parametrize("suffix", ["txt", "py", "cuh", "cpp"])
def test_other_kinds_of_file(tmp_path, suffix):
    file = tmp_path / f"a.{suffix}"
    file.write_text("")
    assert "expected a .cu file" in refusal(file)


def test_missing(tmp_path):
    assert "No such file" in refusal(tmp_path / "nowhere.cu")
    assert "not a file name" in refusal("a\0b.cu")


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_unreadable_file(tmp_path):
    file = tmp_path / "a.cu"
    file.write_text("")
    file.chmod(0)
    assert "Permission denied" in refusal(file)


def test_unreadable_for_root_too(tmp_path, monkeypatch):
    def denied(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "a.cu"
    file.write_text("")
    monkeypatch.setattr(module.os, "open", denied)
    assert refusal(file) == f"cannot read {file}: Permission denied"


def test_directory_without_source(tmp_path):
    assert "no .cu file in this directory (found: nothing)" in refusal(tmp_path)
    (tmp_path / "kernel.cuh").write_text("")
    (tmp_path / "notes.txt").write_text("")
    assert "(found: kernel.cuh, notes.txt)" in refusal(tmp_path)


def test_host_only_source_is_named(tmp_path):
    (tmp_path / "a.cu").write_text("")
    (tmp_path / "helper.cpp").write_text("")
    assert "helper.cpp: only .cu files are compiled" in refusal(tmp_path)


def test_not_utf8_says_where(tmp_path):
    file = tmp_path / "a.cu"
    file.write_bytes(b"// fine\n// caf\xe9\n")
    assert "byte 0xe9 at offset 14 (line 2)" in refusal(file)


def test_nul_bytes(tmp_path):
    file = tmp_path / "a.cu"
    file.write_bytes(b"int x;\n\0")
    assert "NUL byte at offset 7 (line 2)" in refusal(file)


def test_50_megabytes_fail_at_once(tmp_path):
    file = tmp_path / "a.cu"
    with file.open("wb") as f:
        f.truncate(50 << 20)
    start = time.monotonic()
    assert "50.0 MiB; a candidate may have 2.0 MiB" in refusal(file)
    assert time.monotonic() - start < 0.1


def test_the_limit_is_for_all_files_together(tmp_path):
    for name in ("a.cu", "b.cu", "c.cu"):
        (tmp_path / name).write_bytes(b"/" * (MAX_BYTES // 2))
    assert "c.cu" in refusal(tmp_path)
    with pytest.raises(UsageError, match=r"3\.0 MiB of source"):
        from_text("big", {"a.cu": "/" * MAX_BYTES, "b.cu": "/" * (1 << 20)})


def test_too_many_files_and_too_deep(tmp_path):
    for i in range(65):
        (tmp_path / f"f{i}.cuh").write_text("")
    assert "more than 64 source files" in refusal(tmp_path)
    deep = tmp_path / "deep"
    (deep / "1/2/3/4/5").mkdir(parents=True)
    assert "nested deeper than 4" in refusal(deep)


def test_links_are_refused(tmp_path):
    secret = tmp_path / "secret.cu"
    secret.write_text("")
    link = tmp_path / "link.cu"
    link.symlink_to(secret)
    assert "is a symbolic link" in refusal(link)
    directory = tmp_path / "directory"
    directory.mkdir()
    (directory / "a.cu").symlink_to("/etc/passwd")
    assert "a.cu is a symbolic link" in refusal(directory)
    (directory / "a.cu").unlink()
    (directory / "sub").symlink_to("/etc")
    assert "sub is a symbolic link" in refusal(directory)


def test_pipes_and_devices(tmp_path):
    pipe = tmp_path / "pipe.cu"
    os.mkfifo(pipe)
    assert "not a regular file" in refusal(pipe)
    assert "expected a .cu file" in refusal("/dev/zero")


@pytest.mark.parametrize(
    "name", ["-o.cu", "--help.cu", "+x.cu", "a b.cu", "a;b.cu", "$(id).cu", '"x".cu', "größe.cu"]
)
def test_names_that_a_command_line_could_misread(tmp_path, name):
    file = tmp_path / name
    file.write_text("")
    assert "use letters, digits" in refusal(file)
    with pytest.raises(UsageError):
        from_text("x", {name: "", "a.cu": ""})


@pytest.mark.parametrize("name", ["../a.cu", "/a.cu", "a/../b.cu", "a//b.cu", "./a.cu", ".a.cu", "a.so"])
def test_path_tricks_in_text(name):
    with pytest.raises(UsageError):
        from_text("x", {name: "", "a.cu": ""})


@pytest.mark.parametrize("folder", ["solve.h", "x.cu"])
def test_a_folder_that_is_called_as_a_file_is(tmp_path, folder):
    with pytest.raises(UsageError, match=f"{folder} is a file's name"):
        from_text("one", {"x.cu": "", f"{folder}/part.cuh": ""})


@pytest.mark.parametrize("text", ["int x;\n\0", "int x;\n// \ud83d"], ids=["nul", "half_a_pair"])
def test_text_that_no_file_holds_is_refused(text):
    with pytest.raises(
        UsageError, match=r"a.cu is not text: it holds the character '.x?u?[0d]\w+' \(line 2\)"
    ):
        from_text("x", {"a.cu": text})


def test_text_has_the_limits_of_a_directory():
    with pytest.raises(UsageError, match="more than 64 source files"):
        from_text("x", {f"f{i}.cu": "" for i in range(65)})
    with pytest.raises(UsageError, match="nested deeper than 4"):
        from_text("x", {"1/2/3/4/5/a.cu": ""})
    assert from_text("x", {"1/2/3/4/a.cu": ""}).units


def test_a_directory_whose_name_could_paint_a_line_is_refused(tmp_path):
    directory = tmp_path / "mine\nsolve.cu  correct"
    directory.mkdir()
    (directory / "a.cu").write_text("")
    assert "without line breaks and control characters" in refusal(directory)
