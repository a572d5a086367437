"""A user's CSV file as rows of text, whichever program wrote it. Knows no column."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from gcpsl.errors import DataError

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def csv_rows(path: Path, name: str) -> Iterator[tuple[int, list[str]]]:
    """Each row with the number of the line that it ends on; blank lines are rows too.

    The text is UTF-8 with or without a byte-order mark, its lines end as on any system. `name` is what messages call
    the file.
    """
    reader = csv.reader(io.StringIO(_text(path, name), newline=""))
    try:
        for fields in reader:
            yield reader.line_num, fields
    except csv.Error as error:
        raise DataError(
            f"can't read {name} as CSV: {error} in line {reader.line_num}; look for a quotation mark that isn't closed"
        ) from None


def is_blank(fields: list[str]) -> bool:
    """Whether a row is empty, or has nothing but separators and blanks."""
    return not any(field.strip() for field in fields)


def _text(path: Path, name: str) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"can't read {name}: {error.strerror}") from None
    try:
        if b"\0" not in content:
            return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass  # refused below, like what has zeros
    is_utf16 = content.startswith(UTF16_MARKS)
    raise DataError(
        f"can't read {name} as CSV: it is {'UTF-16' if is_utf16 else 'not UTF-8 text'}; save it as UTF-8 "
        "(spreadsheets call that 'CSV UTF-8')"
    )
