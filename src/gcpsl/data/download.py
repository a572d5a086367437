"""Official archives fetched with resume and checksum, then unpacked whole or not at all.

What the files hold is the loaders' business, which say if a folder that is there is whole. What is fetched waits in
`FILE.part` until its MD5, the only digest the publishers give, is right.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path, PurePosixPath

from gcpsl.data.cifar import cifar10, cifar100
from gcpsl.data.fashion_mnist import fashion_mnist
from gcpsl.errors import ConfigError, DataError, nearest

Progress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes fetched so far, and how many there are if the server says."""

ATTEMPTS = 5
TIMEOUT_S = 30
CHUNK_BYTES = 1 << 18


@dataclass(frozen=True)
class Archive:
    """One file of a source: its name below the source's address, and its MD5."""

    file: str
    md5: str


@dataclass(frozen=True)
class Source:
    """Where a data set comes from and the folder it ends in; tar archives contain that folder.

    `read` raises a DataError unless the folder is whole.
    """

    name: str
    base_url: str
    folder: str
    archives: tuple[Archive, ...]
    read: Callable[[Path], object]


CIFAR_URL = "https://www.cs.toronto.edu/~kriz"
SOURCES = {
    source.name: source
    for source in (
        Source(
            "cifar10",
            CIFAR_URL,
            "cifar-10-batches-py",
            (Archive("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),),
            cifar10,
        ),
        Source(
            "cifar100",
            CIFAR_URL,
            "cifar-100-python",
            (Archive("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),),
            cifar100,
        ),
        Source(
            "fashion-mnist",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            "fashion-mnist",
            (
                Archive("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                Archive("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
                Archive("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
                Archive("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
            ),
            fashion_mnist,
        ),
    )
}
MIRROR_SCHEMES = ("http", "https", "ftp", "file")


def get(name: str, root: Path, *, base_url: str | None = None, progress: Progress | None = None) -> Path:
    """The folder of data set `name` below `root`, fetched unless it is there and whole; `base_url` is a mirror."""
    if name not in SOURCES:
        raise ConfigError(f"'{name}' is not a data set that can be downloaded: {nearest(name, SOURCES)}")
    source = SOURCES[name]
    if base_url is not None:
        _refuse_no_address(base_url)
        source = replace(source, base_url=base_url)
    return download(source, root, progress)


def download(source: Source, root: Path, progress: Progress | None = None) -> Path:
    """As `get`. Interrupted at any moment, it goes on from there when called again."""
    folder = root / source.folder
    if folder.is_dir() and _is_whole(source, folder):
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        files = [_fetch(source, archive, root, progress or _silent) for archive in source.archives]
        with tempfile.TemporaryDirectory(prefix=f".{source.name}-", dir=root) as scratch:
            _put(_unpack(files, source.folder, Path(scratch)), folder)
        for file in files:
            file.unlink(missing_ok=True)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise DataError(
            f"can't store {source.name} in '{root}': {error.strerror or error}; "
            + ("free some space there" if full else "make it a folder that you can write to")
            + ", or name another by --root"
        ) from None
    return folder


def _refuse_no_address(mirror: str) -> None:
    try:
        parts = urllib.parse.urlsplit(mirror)
        host = (parts.hostname or "").encode("idna")
        sound = parts.scheme in MIRROR_SCHEMES and bool(host or parts.scheme == "file") and parts.port != 0
    except ValueError:
        sound = False
    if not (sound and mirror.isascii() and mirror.isprintable() and " " not in mirror):
        raise ConfigError(
            f"--mirror = '{mirror}' is not an address; write that of a folder which serves the official files, "
            "as in https://SERVER/FOLDER"
        )


def _is_whole(source: Source, folder: Path) -> bool:
    try:
        source.read(folder)
    except DataError:
        return False
    return True


def _put(fresh: Path, folder: Path) -> None:
    """Makes the files of `fresh` those of `folder`; what else is there stays."""
    if not folder.is_dir():
        fresh.rename(folder)
        return
    for file in fresh.iterdir():
        file.replace(folder / file.name)
        if file.suffix == ".gz":
            # the damaged one might be its unpacked twin, which loaders would read in its place
            (folder / file.stem).unlink(missing_ok=True)


def _fetch(source: Source, archive: Archive, root: Path, progress: Progress) -> Path:
    target, part = root / archive.file, root / f"{archive.file}.part"
    if target.is_file() and _md5(target) == archive.md5:
        return target
    url = f"{source.base_url.rstrip('/')}/{archive.file}"
    try:
        _complete(url, part, progress)
    except _FetchError as error:
        kept = f" ({part.stat().st_size} bytes are kept)" if part.exists() else ""
        raise DataError(
            f"can't fetch {url}: {error}{kept}; check the network and run the command again, name another server of "
            f"the same files by --mirror, or put {archive.file} into '{root}' by hand"
        ) from None
    if _md5(part) != archive.md5:
        part.unlink()
        raise DataError(
            f"{url} is not the official file: its MD5 is not {archive.md5}. What was fetched has been deleted; "
            "run the command again, or use another mirror"
        )
    return part.rename(target)


def _complete(url: str, part: Path, progress: Progress) -> None:
    """Fetches into `part` until it is whole, taking up again where a connection broke."""
    problem = ""
    for _ in range(ATTEMPTS):
        try:
            if _continue(url, part, progress):
                return
            problem = "the connection closes early"
        except _BrokenError as error:
            problem = str(error)
    raise _FetchError(problem)


def _continue(url: str, part: Path, progress: Progress) -> bool:
    """One request for what is missing; whether all the bytes that the server announced are there."""
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        with _network():
            response = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return True  # nothing is missing; the checksum will tell
        raise _FetchError(f"the server answers {error.code} {error.reason}") from None
    with response:
        resumed = response.status == HTTPStatus.PARTIAL_CONTENT
        done = start if resumed else 0
        length = response.headers["Content-Length"]
        total = None if length is None else done + int(length)
        with part.open("ab" if resumed else "wb") as file:
            while chunk := _read(response):
                file.write(chunk)
                done += len(chunk)
                progress(part.name.removesuffix(".part"), done, total)
    return total is None or done == total


class _FetchError(Exception):
    """Why a file can't be had from this server."""


class _BrokenError(_FetchError):
    """The network failed, so trying again at once may help."""


@contextmanager
def _network() -> Iterator[None]:
    """Tells the network's failures from the disk's, which are OSErrors too."""
    try:
        yield
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(str(getattr(error, "reason", error)) or type(error).__name__) from None


def _read(response: http.client.HTTPResponse) -> bytes:
    with _network():
        return response.read(CHUNK_BYTES)


def _unpack(files: list[Path], folder: str, scratch: Path) -> Path:
    """The files, or the tar archive's flat `folder` of regular files, in a folder of that name in `scratch`."""
    target = scratch / folder
    target.mkdir()
    for file in files:
        if ".tar" not in file.suffixes:
            shutil.copy(file, target)
            continue
        try:
            _extract(file, PurePosixPath(folder), target)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise DataError(f"'{file}' can't be unpacked: {error}") from None
    return target


def _extract(file: Path, folder: PurePosixPath, target: Path) -> None:
    """Links, devices and paths that lead elsewhere are never written."""
    with tarfile.open(file) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            content = archive.extractfile(member) if member.isreg() and path.parent == folder else None
            if content is not None:
                with content, (target / path.name).open("wb") as out:
                    shutil.copyfileobj(content, out)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()


def _silent(file: str, done_bytes: int, total_bytes: int | None) -> None:
    """Progress that nobody watches."""
