"""Downloads against a real HTTP server: whole, resumed, without ranges, broken, and forged."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from gcpsl.data.download import ATTEMPTS, SOURCES, Archive, Source, download, get
from gcpsl.data.fashion_mnist import fashion_mnist
from gcpsl.errors import ConfigError, DataError

DEBIAN = Path("/usr/share/datasets/fashion-mnist")


@dataclass
class Site:
    """What the server serves, how it behaves, and the Range header of each request."""

    files: dict[str, bytes]
    url: str = ""
    ranges: bool = True
    announce_length: bool = True
    break_after_bytes: int | None = None
    hang_up: bool = False
    asked: list[str | None] = field(default_factory=list)


@pytest.fixture
def site() -> Iterator[Site]:
    state = Site({})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers["Range"]
            state.asked.append(asked)
            content = state.files.get(self.path.lstrip("/"))
            if state.hang_up:
                self.close_connection = True
                return
            if content is None:
                self.send_error(404)
                return
            start = 0
            if asked and state.ranges:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            if state.announce_length:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end = None if state.break_after_bytes is None else start + state.break_after_bytes
            self.wfile.write(content[start:end])

        def log_message(self, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield state
        server.shutdown()
        thread.join()


CONTENT = bytes(range(256)) * 4000


def read_toy(folder: Path) -> None:
    """The toy data set's loader, which looks at all that it needs."""
    if not (folder / "part.gz").is_file() or (folder / "part.gz").read_bytes() != CONTENT:
        raise DataError("it is damaged")


def anything(folder: Path) -> None:
    """A loader that finds nothing wrong."""


def plain(site: Site, content: bytes = CONTENT) -> Source:
    site.files["part.gz"] = content
    return Source("toy", site.url, "toy", (Archive("part.gz", hashlib.md5(CONTENT).hexdigest()),), read_toy)


def tar(site: Site, *members: tuple[str, bytes] | tarfile.TarInfo) -> Source:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    site.files["toy.tar.gz"] = buffer.getvalue()
    return Source(
        "toy", site.url, "toy", (Archive("toy.tar.gz", hashlib.md5(buffer.getvalue()).hexdigest()),), anything
    )


def test_a_plain_file_arrives_whole_with_progress_and_nothing_is_left_beside_it(site: Site, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    folder = download(plain(site), tmp_path / "new" / "root", lambda *report: seen.append(report))
    assert folder == tmp_path / "new" / "root" / "toy"
    assert (folder / "part.gz").read_bytes() == CONTENT
    assert [path.name for path in folder.parent.iterdir()] == ["toy"]
    assert seen[-1] == ("part.gz", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})


def test_what_is_there_is_not_fetched_again(site: Site, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "part.gz").write_bytes(CONTENT)
    assert download(plain(site), tmp_path) == tmp_path / "toy"
    assert site.asked == []


@pytest.mark.parametrize("damaged", [None, CONTENT[:-1], b""])
def test_a_folder_that_is_not_whole_is_mended_and_what_else_is_in_it_stays(
    damaged: bytes | None, site: Site, tmp_path: Path
) -> None:
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    if damaged is not None:
        (folder / "part.gz").write_bytes(damaged)
    assert download(plain(site), tmp_path) == folder
    read_toy(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["notes.txt", "part.gz"]
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


def test_an_unpacked_archive_mends_a_folder_too(site: Site, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    source = replace(tar(site, ("toy/part.gz", CONTENT)), read=read_toy)
    read_toy(download(source, tmp_path))
    assert len(site.asked) == 1
    download(source, tmp_path)
    assert len(site.asked) == 1


def test_a_damaged_folder_stays_as_it_is_while_nothing_can_be_fetched(site: Site, tmp_path: Path) -> None:
    source = plain(site)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "part.gz").write_bytes(b"half")
    site.files.clear()
    with pytest.raises(DataError, match="404"):
        download(source, tmp_path)
    assert (tmp_path / "toy" / "part.gz").read_bytes() == b"half"


def test_an_interrupted_download_goes_on_where_it_stopped(site: Site, tmp_path: Path) -> None:
    class Interrupted(BaseException):
        """What Ctrl-C raises, as far as the download can tell."""

    def stop(file: str, done_bytes: int, total_bytes: int | None) -> None:
        if done_bytes > 500_000:
            raise Interrupted

    source = plain(site)
    with pytest.raises(Interrupted):
        download(source, tmp_path, stop)
    kept = (tmp_path / "part.gz.part").stat().st_size
    assert 500_000 < kept < len(CONTENT)
    folder = download(source, tmp_path)
    assert site.asked == [None, f"bytes={kept}-"]
    assert (folder / "part.gz").read_bytes() == CONTENT


def test_a_connection_that_breaks_is_taken_up_again_at_once(site: Site, tmp_path: Path) -> None:
    source = plain(site)
    site.break_after_bytes = 300_000
    assert (download(source, tmp_path) / "part.gz").read_bytes() == CONTENT
    assert site.asked == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]


def test_a_connection_that_keeps_breaking_is_given_up_with_what_is_there_kept(site: Site, tmp_path: Path) -> None:
    source = plain(site)
    site.break_after_bytes = 1000
    with pytest.raises(
        DataError, match=f"closes early \\({1000 * ATTEMPTS} bytes are kept\\); .*run the command again"
    ):
        download(source, tmp_path)
    site.break_after_bytes = None
    assert (download(source, tmp_path) / "part.gz").read_bytes() == CONTENT
    assert site.asked[-1] == f"bytes={1000 * ATTEMPTS}-"


def test_a_server_without_ranges_sends_all_again(site: Site, tmp_path: Path) -> None:
    source = plain(site)
    (tmp_path / "part.gz.part").write_bytes(b"from an earlier try")
    site.ranges = False
    assert (download(source, tmp_path) / "part.gz").read_bytes() == CONTENT


def test_a_server_that_does_not_tell_the_length_will_do(site: Site, tmp_path: Path) -> None:
    source = plain(site)
    site.announce_length = False
    seen: list[int | None] = []
    download(source, tmp_path, lambda _file, _done, total: seen.append(total))
    assert set(seen) == {None}


def test_a_part_that_is_already_whole_is_used(site: Site, tmp_path: Path) -> None:
    source = plain(site)
    (tmp_path / "part.gz.part").write_bytes(CONTENT)
    assert (download(source, tmp_path) / "part.gz").read_bytes() == CONTENT


def test_an_archive_that_was_fetched_but_not_unpacked_is_used(site: Site, tmp_path: Path) -> None:
    source = plain(site)
    (tmp_path / "part.gz").write_bytes(CONTENT)
    download(source, tmp_path)
    assert site.asked == []


def test_a_forged_file_is_deleted_and_refused(site: Site, tmp_path: Path) -> None:
    source = plain(site, content=CONTENT[:-1] + b"!")
    with pytest.raises(DataError, match=r"part.gz is not the official file: its MD5 is not"):
        download(source, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_absent_file_and_a_dead_server_say_so(site: Site, tmp_path: Path) -> None:
    absent = Source("toy", site.url, "toy", (Archive("nothing.gz", "0"),), anything)
    advice = f".*check the network .* by --mirror, or put nothing.gz into '{tmp_path}' by hand"
    with pytest.raises(DataError, match=f"can't fetch {site.url}/nothing.gz: the server answers 404{advice}"):
        download(absent, tmp_path)
    assert len(site.asked) == 1
    site.hang_up = True
    with pytest.raises(DataError, match=r"Remote end closed connection"):
        download(absent, tmp_path)
    with pytest.raises(DataError, match=f"can't fetch http://127.0.0.1:1/nothing.gz: .*refused{advice}"):
        download(replace(absent, base_url="http://127.0.0.1:1"), tmp_path)


def test_a_root_that_cannot_be_written_says_so(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for root in (tmp_path / "file", Path("/proc/nowhere")):
        with pytest.raises(DataError, match=rf"can't store toy in '{root}': .*; make it a folder .* by --root$"):
            download(plain(site), root)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full, the disk that is always full")
def test_a_full_disk_says_to_free_space(site: Site, tmp_path: Path) -> None:
    (tmp_path / "part.gz.part").symlink_to("/dev/full")
    with pytest.raises(DataError, match=r"No space left on device; free some space there"):
        download(plain(site), tmp_path)


def test_only_the_folders_own_regular_files_leave_a_tar_archive(site: Site, tmp_path: Path) -> None:
    link = tarfile.TarInfo("toy/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    source = tar(
        site,
        ("toy/data", b"good"),
        ("toy/../../escaped", b"bad"),
        ("/absolute", b"bad"),
        ("other/file", b"bad"),
        link,
    )
    folder = download(source, tmp_path / "root")
    assert [path.name for path in folder.iterdir()] == ["data"]
    assert (folder / "data").read_bytes() == b"good"
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


@pytest.mark.parametrize("content", [b"not a tar archive", gzip.compress(b"x" * 2000), b""])
def test_an_archive_that_is_none_is_refused(content: bytes, site: Site, tmp_path: Path) -> None:
    site.files["toy.tar.gz"] = content
    source = Source("toy", site.url, "toy", (Archive("toy.tar.gz", hashlib.md5(content).hexdigest()),), anything)
    with pytest.raises(DataError, match=r"toy.tar.gz' can't be unpacked"):
        download(source, tmp_path)
    assert not (tmp_path / "toy").exists()


def test_get_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"'cifar-10' is not a data set that can be downloaded: did you mean 'cifar10'"
    ):
        get("cifar-10", tmp_path)


@pytest.mark.parametrize(
    "mirror",
    ["", "notaurl", "example.org/data", "http://", "http://a..b/", "http://h:port", "http://[::1", "http://a b/"],
)
def test_a_mirror_that_is_no_address_is_a_wrong_setting(mirror: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--mirror = '.*' is not an address; write that of a folder"):
        get("cifar100", tmp_path, base_url=mirror)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_can_be_the_mirror(site: Site, tmp_path: Path) -> None:
    plain(site)
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "part.gz").write_bytes(CONTENT)
    source = replace(plain(site), base_url=(tmp_path / "mirror").as_uri())
    read_toy(download(source, tmp_path))
    assert site.asked == []


@pytest.mark.parametrize("name", list(SOURCES))
def test_get_looks_into_a_folder_that_is_there(name: str, site: Site, tmp_path: Path) -> None:
    (tmp_path / SOURCES[name].folder).mkdir()
    with pytest.raises(DataError, match=f"can't fetch {site.url}/{SOURCES[name].archives[0].file}: .* 404"):
        get(name, tmp_path, base_url=site.url)


def idx(shape: tuple[int, ...]) -> bytes:
    """An IDX file of zeros."""
    return gzip.compress(bytes((0, 0, 8, len(shape))) + np.array(shape, ">u4").tobytes() + bytes(math.prod(shape)))


def test_fetching_mends_what_is_read_though_it_lies_there_unpacked(site: Site, tmp_path: Path) -> None:
    sizes = {
        "train-images-idx3": (6, 3, 4),
        "train-labels-idx1": (6,),
        "t10k-images-idx3": (2, 3, 4),
        "t10k-labels-idx1": (2,),
    }
    site.files = {f"{name}-ubyte.gz": idx(shape) for name, shape in sizes.items()}
    archives = tuple(Archive(file, hashlib.md5(content).hexdigest()) for file, content in site.files.items())
    source = Source("fashion-mnist", site.url, "fashion-mnist", archives, fashion_mnist)
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    for file, content in site.files.items():
        (folder / file.removesuffix(".gz")).write_bytes(gzip.decompress(content)[:-1])
    with pytest.raises(DataError, match="truncated"):
        fashion_mnist(tmp_path)
    download(source, tmp_path)
    assert len(fashion_mnist(tmp_path).train) == 6


def test_get_asks_another_mirror_for_the_official_files(site: Site, tmp_path: Path) -> None:
    site.files["cifar-10-python.tar.gz"] = b"not the official archive"
    with pytest.raises(DataError, match=f"{site.url}/cifar-10-python.tar.gz is not the official file"):
        get("cifar10", tmp_path, base_url=f"{site.url}/")


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_the_official_fashion_mnist_digests_catch_debians_recompressed_files(site: Site, tmp_path: Path) -> None:
    site.files = {archive.file: (DEBIAN / archive.file).read_bytes() for archive in SOURCES["fashion-mnist"].archives}
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte.gz is not the official file"):
        get("fashion-mnist", tmp_path, base_url=site.url)
