"""A build's text is understood or refused, and its sources are found, whatever the wheel holds."""

from __future__ import annotations

import stat
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekv.errors import TracekvError, UnreadableError, UsageError
from tracekv.replay.rigs.build import MARK, Build, cache_folder, find_source, parse_build
from tracekv.replay.rigs.patches import PATCHES


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRACEKV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def tree(folder: Path) -> Path:
    (folder / MARK).mkdir(parents=True)
    (folder / MARK / "conn.py").write_text("here = True\n")
    return folder


def wheel(path: Path, names: dict[str, str] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in (names or {f"{MARK}/conn.py": "here = True\n", "sglang/data.bin": "x"}).items():
            archive.writestr(name, text)
    return path


# -- the text


@pytest.mark.parametrize(
    ("text", "base", "patches"),
    [
        ("0.5.14", "0.5.14", ()),
        ("0.5.14+fork", "0.5.14", ("fork",)),
        ("0.5.14+fix-b+fork", "0.5.14", ("fork", "fix-b")),
        ("0.5.14+fix-b+fix-a+fork", "0.5.14", ("fork", "fix-a", "fix-b")),
        ("0.5.14+fork+fork", "0.5.14", ("fork",)),
        ("0.5.10.post1", "0.5.10.post1", ()),
        ("0.6.0rc1", "0.6.0rc1", ()),
    ],
)
def test_versions_and_patches(text: str, base: str, patches: tuple[str, ...]) -> None:
    found = parse_build(text)
    assert (found.base, found.patches, found.is_path) == (base, patches, False)
    assert parse_build(found.label) == found


def test_an_unknown_patch_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no patch 'fix-c'") as refused:
        parse_build("0.5.14+fork+fix-c")
    assert all(name in str(refused.value) for name in PATCHES)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+fork",
        "nowhere",
        "./nowhere+fork",
        "0.5.14\n",
        "0.5.14 ",
        "x" * 5000,
        "a\0b",
        "~nobody/x",
        "v0.5",
    ],
)
def test_what_is_neither_a_version_nor_a_path_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="neither a version nor a path"):
        parse_build(text)


def test_a_path_may_hold_a_plus_and_patches(tmp_path: Path) -> None:
    folder = tree(tmp_path / "a+b+c")
    found = parse_build(f"{folder}+fork")
    assert (found.base, found.patches, found.is_path) == (str(folder), ("fork",), True)
    assert find_source(found) == folder


def test_a_path_may_end_like_a_patch(tmp_path: Path) -> None:
    folder = tree(tmp_path / "sglang+fork")
    assert parse_build(str(folder)) == Build(str(folder), ())
    assert parse_build(f"{folder}+fork") == Build(str(folder), ("fork",))


def test_a_path_may_begin_with_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tree(tmp_path / "src")
    assert find_source(parse_build("~/src")) == folder


@given(st.text(max_size=40))
def test_any_text_is_a_build_or_one_clear_error(text: str) -> None:
    try:
        assert isinstance(parse_build(text), Build)
    except TracekvError as error:
        assert error.exit_code == 2


# -- trees and the cache


def test_a_tree_with_and_without_its_python_folder(tmp_path: Path) -> None:
    plain = tree(tmp_path / "plain")
    checkout = tree(tmp_path / "checkout/python").parent
    assert find_source(parse_build(str(plain))) == plain
    assert find_source(parse_build(str(checkout))) == checkout / "python"


def test_a_folder_without_sglang_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=str(MARK)):
        find_source(parse_build(str(tmp_path)))


def test_a_version_is_found_in_the_cache(cache: Path) -> None:
    folder = tree(cache / "sglang-9.9.9")
    assert find_source(parse_build("9.9.9+fork")) == folder


def test_a_version_that_is_not_here_says_how_to_get_it(cache: Path) -> None:
    with pytest.raises(UsageError, match=r"9\.9\.9 is not installed") as refused:
        find_source(parse_build("9.9.9"))
    assert "--fetch" in str(refused.value) and "pip download --no-deps sglang==9.9.9" in str(refused.value)
    assert str(cache) in str(refused.value)


def test_the_cache_is_the_users_unless_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRACEKV_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "tracekv"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache/tracekv"


def test_fetch_hands_over_what_pip_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        said = "WARNING: x\nERROR: No matching distribution found\n"
        return subprocess.CompletedProcess(command, 1, "", said)

    monkeypatch.setattr(subprocess, "run", pip)
    with pytest.raises(UsageError, match=r"9\.9\.9 could not be downloaded: ERROR: No matching"):
        find_source(parse_build("9.9.9"), fetch=True)
    assert asked[0][:4] == [sys.executable, "-m", "pip", "download"] and asked[0][-1] == "sglang==9.9.9"


@pytest.mark.sglang
def test_fetch_of_a_version_that_nobody_released_is_one_clear_error() -> None:
    with pytest.raises(UsageError, match=r"SGLang 9\.9\.9 could not be downloaded") as refused:
        find_source(parse_build("9.9.9"), fetch=True)
    assert "\n" not in refused.value.message


# -- wheels


def test_only_the_sources_of_a_wheel_are_unpacked_and_once(tmp_path: Path) -> None:
    path = wheel(tmp_path / "any-name.whl")
    source = find_source(parse_build(str(path)))
    assert (source / MARK / "conn.py").read_text() == "here = True\n"
    assert not (source / "sglang/data.bin").exists()
    (source / MARK / "kept").touch()
    assert find_source(parse_build(str(path))) == source
    assert (source / MARK / "kept").exists()


def test_wheels_are_known_by_content_and_not_by_name(tmp_path: Path) -> None:
    one = find_source(parse_build(str(wheel(tmp_path / "x.whl"))))
    other = find_source(parse_build(str(wheel(tmp_path / "x.whl", {f"{MARK}/conn.py": "here = False\n"}))))
    assert one != other


def test_hostile_names_stay_inside_the_cache(tmp_path: Path, cache: Path) -> None:
    names = {f"{MARK}/conn.py": "x = 1"}
    hostile = [
        "../out.py",
        "sglang/../../../out.py",
        "/out.py",
        "sglang//../../out.py",
        "sglang/..\\..\\o.py",
    ]
    path = wheel(tmp_path / "evil.whl", names | dict.fromkeys(hostile, "evil"))
    source = find_source(parse_build(str(path)))
    written = {each for each in tmp_path.rglob("*") if each.is_file() and each != path}
    assert all(source in each.parents for each in written)
    assert not [each for each in cache.iterdir() if each != source]


def test_a_link_in_a_wheel_is_no_link_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "link.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{MARK}/conn.py", "x = 1")
        link = zipfile.ZipInfo("sglang/evil.py")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    source = find_source(parse_build(str(path)))
    assert not (source / "sglang/evil.py").is_symlink()


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "bomb.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{MARK}/conn.py", "x = 1")
    content = path.read_bytes()
    central = content.index(b"PK\x01\x02")
    path.write_bytes(content[: central + 24] + struct.pack("<I", 2**31) + content[central + 28 :])
    with pytest.raises(UnreadableError, match="more than 256 MiB"):
        find_source(parse_build(str(path)))
    assert not list(cache.glob("*")) if cache.exists() else True


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04" + b"\0" * 40])
def test_what_is_no_zip_is_unreadable(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.whl"
    path.write_bytes(content)
    with pytest.raises(UnreadableError, match="no readable wheel"):
        find_source(parse_build(str(path)))


def test_a_wheel_of_something_else_is_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path / "other.whl", {"other/__init__.py": ""})
    with pytest.raises(UnreadableError, match="no wheel of SGLang"):
        find_source(parse_build(str(path)))


def test_a_file_that_is_also_a_folder_is_unreadable_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    path = wheel(tmp_path / "x.whl", {"sglang/a.py": "", "sglang/a.py/b.py": "", f"{MARK}/conn.py": ""})
    with pytest.raises(UnreadableError):
        find_source(parse_build(str(path)))
    assert list(cache.glob("*")) == []


@given(data=st.data())
def test_a_damaged_wheel_is_read_or_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("w")
    content = bytearray(wheel(folder / "x.whl").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (folder / "x.whl").write_bytes(content)
    try:
        assert (find_source(parse_build(str(folder / "x.whl"))) / MARK).is_dir()
    except TracekvError as error:
        assert error.exit_code == 4
