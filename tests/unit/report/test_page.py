"""The page is well-formed, stands by itself, and is the same for those who can't see its pictures."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from unit.report.made import QUICK, make_run, sections_of

from gcpsl.config import override
from gcpsl.report.canvas import picture
from gcpsl.report.collect import collect
from gcpsl.report.curves import accuracy_against_all, drift
from gcpsl.report.page import VARIABLES, Chapter, Page, html
from gcpsl.report.provenance import provenance
from gcpsl.report.tables import table

EMPTY = {"meta", "br", "link", "img"}
NAMESPACES = ("http://www.w3.org/", "http://purl.org/", "http://creativecommons.org/ns#")


class Checked(HTMLParser):
    """Notes what is not closed, and every element with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("runs") / "<b>&"
    for lr in (0.1, 0.2):
        make_run(root, f"run-{lr}", override(QUICK, f"optimizer.lr={lr}"), (90, 91))
    (section,) = sections_of(root)
    wide, small = picture(accuracy_against_all(section)), drift(section)
    chapters = (Chapter("Runs of mine", (table(section),), (wide, picture(small))),)  # type: ignore[arg-type]
    origins = provenance(collect([root]).groups, [section])
    return html(Page("A <title>", chapters, origins, ("this & that",), ("optimizer.lr=0.1",)))


def test_every_element_is_closed_and_every_name_is_used_once(text: str) -> None:
    checked = Checked(text)
    assert checked.open == []
    names = [name for _, attributes in checked.elements if (name := attributes.get("id"))]
    assert len(names) == len(set(names)) > 20
    for target in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text):
        assert "".join(target) in names


def test_nothing_is_fetched_from_elsewhere(text: str) -> None:
    for address in re.findall(r"https?://[^\s\"'<>)]*", text):
        assert address.startswith(NAMESPACES), address
    tags = {tag for tag, _ in Checked(text).elements}
    assert not tags & {"script", "link", "iframe", "object"}
    assert "@import" not in text
    assert "@font-face" not in text
    for address in re.findall(r'(?:src|xlink:href)="([^"]*)"', text):
        assert address.startswith(("#", "data:"))


def test_what_users_wrote_is_text(text: str) -> None:
    assert "A &lt;title&gt;" in text
    assert "this &amp; that" in text
    assert "&lt;b&gt;&amp;" in text
    assert "<b>" not in text


def test_pictures_are_told_and_tables_have_headers(text: str) -> None:
    elements = Checked(text).elements
    told = [attributes.get("aria-label") for tag, attributes in elements if tag == "svg"]
    assert len(told) == 3
    assert all(label and "standard deviation" in label for label in told)
    assert all(attributes.get("scope") in ("col", "row", "rowgroup") for tag, attributes in elements if tag == "th")
    assert [attributes["lang"] for tag, attributes in elements if tag == "html"] == ["en"]
    assert 'name="viewport"' in text


def test_colours_follow_light_and_dark(text: str) -> None:
    assert "prefers-color-scheme: dark" in text
    body = text.partition("<main>")[2]
    for colour, name in VARIABLES.items():
        assert colour not in body
        assert text.count(f"--{name}: ") == 2, "each has a light and a dark value"
    assert "var(--s1)" in body


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def themes() -> list[dict[str, str]]:
    """The colours of light and dark, by name."""
    style = (Path(__file__).parents[3] / "src" / "gcpsl" / "report" / "page.css").read_text()
    found = re.findall(r":root \{(.*?)\}", style, re.S)
    assert len(found) == 2
    return [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", theme)) for theme in found]


def test_the_page_in_light_has_the_colours_of_the_files() -> None:
    light, dark = themes()
    assert {light[name] for name in VARIABLES.values()} == set(VARIABLES)
    assert light.keys() == dark.keys()


def test_text_and_lines_stand_out_in_both_themes() -> None:
    for colours in themes():
        for name in ("ink", "muted", "accent"):
            assert contrast(colours[name], colours["surface"]) >= 4.5
        for i in range(8):
            assert contrast(colours[f"s{i}"], colours["surface"]) >= 3


# what a person sees without one kind of cones, in linear RGB (Machado, Oliveira and Fernandes, 2009)
NO_RED = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
NO_GREEN = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
NO_BLUE = ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900))
TO_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
WHITE = (0.9505, 1.0, 1.089)


def seen(colour: str, vision: object) -> NDArray[np.float64]:
    """CIE Lab of a colour as it is seen."""
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(np.array(TO_XYZ) @ np.clip(np.array(vision) @ linear, 0, 1) / WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", [np.eye(3), NO_RED, NO_GREEN, NO_BLUE], ids=["all", "no red", "no green", "no blue"])
def test_rows_are_told_apart_by_every_kind_of_colour_vision(vision: object) -> None:
    for theme in themes():
        places = [seen(theme[f"s{i}"], vision) for i in range(8)]
        for one, other in combinations(places, 2):
            assert np.linalg.norm(one - other) > 20
