"""Which SGLang runs: ``VERSION[+fork][+fix-a][+fix-b]``, or a path to a wheel or a source tree.

A version is looked for in this environment, then in the cache; it is downloaded only on request.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from tracekv.errors import UnreadableError, UsageError
from tracekv.replay.rigs.patches import PATCHES

_VERSION = re.compile(r"\d+(\.\d+)+(\.?(post|rc|a|b|dev)\d+)?")
MARK: Final = Path("sglang/srt/disaggregation")
UNPACKED_LIMIT: Final = 256 * 1024 * 1024  # bytes; a released wheel has about 20 MiB of Python
#: What reading a damaged or hostile archive raises (RuntimeError: it is encrypted or oddly compressed).
DAMAGE: Final = (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError)


@dataclass(frozen=True, slots=True)
class Build:
    """A parsed build: a version or a path, and the names of its patches in the order of application."""

    base: str
    patches: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The build in the form that :func:`parse_build` reads."""
        return "+".join((self.base, *self.patches))

    @property
    def is_path(self) -> bool:
        """Whether the base names a wheel or a tree and not a version."""
        return _VERSION.fullmatch(self.base) is None

    @property
    def path(self) -> Path:
        """The base as a path, with the user's home written out."""
        return Path(self.base).expanduser()


def parse_build(text: str) -> Build:
    """A build from its text.  Raises UsageError for an unknown patch or a base that is neither."""
    base, names = _split(text)
    unknown = [name for name in names if name not in PATCHES]
    if unknown:
        raise UsageError(
            f"build {text!r}: there is no patch {unknown[0]!r}", hint="Patches: " + ", ".join(PATCHES)
        )
    build = Build(base, tuple(name for name in PATCHES if name in names))
    if build.is_path and not (base and _exists(base)):
        raise UsageError(
            f"build {text!r}: {base!r} is neither a version nor a path that exists",
            hint="Examples: 0.5.14+fork, ./sglang-0.5.16-py3-none-any.whl, ~/src/sglang/python",
        )
    return build


def _split(text: str) -> tuple[str, list[str]]:
    """Base and names of patches; a path may hold a plus, so the longest one that exists is meant."""
    first, *rest = text.split("+")
    for taken in range(0 if _VERSION.fullmatch(first) else len(rest), 0, -1):
        path = "+".join((first, *rest[:taken]))
        if _exists(path):
            return path, rest[taken:]
    return first, rest


def _exists(path: str) -> bool:
    """Whether there is such a path; no for a text that cannot be one."""
    try:
        return Path(path).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


def normalized(text: str) -> str:
    """The same build in one spelling: each known patch once, in the order of application."""
    base, *names = text.split("+")
    known = [name for name in PATCHES if name in names]
    return "+".join((base, *known)) if set(names) <= set(PATCHES) else text


def cache_folder() -> Path:
    """Where fetched and unpacked SGLang sources are kept: ``TRACEKV_CACHE``, else the user's cache."""
    chosen = os.environ.get("TRACEKV_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tracekv"


def find_source(build: Build, *, fetch: bool = False) -> Path:
    """The folder that holds ``sglang/`` for this build.

    Raises UsageError where it is not here and ``fetch`` is false, UnreadableError for a wheel that
    is damaged or no SGLang.
    """
    if build.is_path:
        return _from_path(build.path)
    found = _installed(build.base) or _cached(build.base)
    if found:
        return found
    if not fetch:
        raise UsageError(
            f"SGLang {build.base} is not installed here and not in {cache_folder()}",
            hint=f"Add --fetch to download it once (about 15 MB), or: "
            f"pip download --no-deps sglang=={build.base} and give the wheel's path as --build.",
        )
    return _fetched(build.base)


def _from_path(path: Path) -> Path:
    for candidate in (path, path / "python"):
        if (candidate / MARK).is_dir():
            return candidate.resolve()
    if path.is_file() and path.suffix == ".whl":
        return _unpacked(path, cache_folder() / f"wheel-{_digest(path)}")
    raise UsageError(
        f"{path} holds no SGLang: there is no {MARK} in it",
        hint="Give a wheel, or the folder that holds sglang/ (in a checkout: its python/ folder).",
    )


def _installed(version: str) -> Path | None:
    try:
        package = distribution("sglang")
    except PackageNotFoundError:
        return None
    root = Path(str(package.locate_file("")))
    return root if package.version == version and (root / MARK).is_dir() else None


def _cached(version: str) -> Path | None:
    folder = cache_folder() / f"sglang-{version}"
    return folder if (folder / MARK).is_dir() else None


def _fetched(version: str) -> Path:
    wheels = cache_folder() / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--python-version", "3.11", "--dest", str(wheels), f"sglang=={version}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(wheels.glob(f"sglang-{version}-*.whl"))
    if done.returncode != 0 or not found:
        said = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise UsageError(f"SGLang {version} could not be downloaded: {said}", hint="Is the version right?")
    return _unpacked(found[0], cache_folder() / f"sglang-{version}")


def _unpacked(wheel: Path, target: Path) -> Path:
    """The Python sources of a wheel, unpacked once."""
    if (target / MARK).is_dir():
        return target
    try:
        with zipfile.ZipFile(wheel) as archive:
            _extract(archive, target)
    except DAMAGE as error:
        raise UnreadableError(f"{wheel} is no readable wheel: {error}", hint="Download it again.") from error
    if not (target / MARK).is_dir():
        raise UnreadableError(f"{wheel} is no wheel of SGLang: there is no {MARK} in it")
    return target


def _digest(path: Path) -> str:
    """A wheel that a user hands us is known by its content: its name may say anything."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:16]


def _extract(archive: zipfile.ZipFile, target: Path) -> None:
    members = [item for item in archive.infolist() if _is_source(item.filename)]
    if sum(item.file_size for item in members) > UNPACKED_LIMIT:
        raise OSError(f"it would unpack to more than {UNPACKED_LIMIT >> 20} MiB")
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        for item in members:
            archive.extract(item, partial)  # no link is ever made, and no more than the declared size read
        if partial.is_dir() and not target.exists():
            partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _is_source(name: str) -> bool:
    return name.startswith("sglang/") and name.endswith(".py") and ".." not in name
