"""A chart as a page takes it: its own ids, colours by name, and numbers at its marks."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from specbench.charts import plot_style as style
from specbench.charts.map_plot import RAMP
from specbench.charts.plot_names import Floats

COLORS = {
    "ink": (style.INK, "#E6EBF1"),
    "muted": (style.MUTED, "#A3AFBD"),
    "grid": (style.GRID, "#2A323D"),
    "ground": (style.GROUND, "#12161C"),
    "verify": (style.VERIFY, "#3B7F95"),
    "draft": (style.DRAFT, "#86C3D2"),
    "other": (style.OTHER, "#C9DBE0"),
    "series-1": (style.SERIES[0].color, "#72B0FA"),
    "series-2": (style.SERIES[1].color, "#FDB96D"),
    "name-2": (style.SERIES[1].name_color, "#FDB96D"),
    "series-3": (style.SERIES[2].color, "#897AFE"),
    "series-4": (style.SERIES[3].color, "#93F8C3"),
    "name-4": (style.SERIES[3].name_color, "#93F8C3"),
    "series-5": (style.SERIES[4].color, "#A55AA9"),
    **{
        f"map-{place}": pair
        for place, pair in enumerate(
            zip(RAMP, ("#1F3138", "#264650", "#2F5D6A", "#3A7685", "#4A93A4"), strict=True), start=1
        )
    },
}
"""Name to colour in the light and in the dark; found by search, see `plot_style`."""

Tips = Mapping[str, Sequence[str]]
"""What the marks of a group say, by the group's id; a lone shape has one text."""

_NAMES = {light.lower(): name for name, (light, _) in COLORS.items()}
_HEX = re.compile(r"#[0-9a-f]{6}\b")
_NUMBER = re.compile(r"-?\d+\.\d+")
_LETTER = re.compile(r" ?([A-Za-z]) ?")
"""A command of a path, which needs no space around it."""
_DRAFT = re.compile(r"draft-(\d+)-")
_DRAWN = ("d", "x", "y", "transform", "width", "height", "points")
_FONT = "'DejaVu Sans'"
_LETTERS = ("font-size:9px", "font-family:var(--font)")
_KEPT_ID = re.compile(r"-(draft-\d+-.*|bar-\d+)$")
_MANY, _HAIR = 12, 0.12
"""Points of a path from which on it is thinned, and by how much it may move, in points."""


def page_svg(text: str, prefix: str, title: str, tips: Tips) -> str:
    """An SVG of matplotlib to be put into a page, one `role=img` with its marks described.

    `prefix` makes its ids unlike those of other charts, without which a clip path of one would
    cut another.
    """
    # The text is our own drawing, in which foreign names are text and nothing else.
    root = ET.fromstring(text)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        _own(element, prefix)
    for group, said in tips.items():
        _tell(root, f"{prefix}{group}", said)
    _lighten(root)
    _inherit(root)
    _name(root, prefix, title)
    return ET.tostring(root, encoding="unicode", short_empty_elements=True)


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _own(element: ET.Element, prefix: str) -> None:
    """Rename what has an id, round what is drawn, and name its colours."""
    element.tag = _local(element.tag)
    found = {_local(name): value for name, value in element.attrib.items()}
    element.attrib.clear()
    if found.get("transform", "").startswith("rotate(-0 "):
        del found["transform"]
    for name, value in found.items():
        if name == "id":
            value = f"{prefix}{value}"
            belongs = _DRAFT.match(value.removeprefix(prefix))
            if belongs:
                element.set("data-draft", belongs[1])
        elif name == "href":
            value = f"#{prefix}{value.removeprefix('#')}"
        elif name in _DRAWN:
            value = " ".join(_NUMBER.sub(_rounded, _thinned(value)).split())
            value = _LETTER.sub(r"\1", value) if name == "d" else value
        elif name in ("style", "clip-path", "fill", "stroke"):
            value = value.replace("url(#", f"url(#{prefix}").replace(_FONT, "var(--font)")
            value = _HEX.sub(_named, value).replace(": ", ":").replace("; ", ";")
        element.set(name, value)
    # Layout alone: between the parts of a text it would be shown.
    if element.tag not in ("text", "tspan"):
        element.text = None
    element.tail = None


def _thinned(path: str) -> str:
    """A path of straight lines without the points that lie on the line between others."""
    parts = path.split()
    points = parts[: len(parts) - len(parts) % 3]
    straight = len(points) > 3 * _MANY and set(points[::3]) <= {"M", "L"}
    if not straight or parts[len(points) :] not in ([], ["z"]):
        return path
    ends = [n for n, letter in enumerate(points[::3]) if letter == "M"] + [len(points) // 3]
    out: list[str] = []
    for start, end in pairwise(ends):
        xy = np.array([float(n) for n in points[3 * start : 3 * end] if n not in "ML"]).reshape(
            -1, 2
        )
        kept = xy[sorted({0, len(xy) - 1, *_needed(xy, 0, len(xy) - 1)})]
        out += [f"{'L' if n else 'M'} {x} {y}" for n, (x, y) in enumerate(kept)]
    return " ".join([*out, *parts[len(points) :]])


def _needed(xy: Floats, first: int, last: int) -> Iterator[int]:
    """The points that are further than a hair from the line between their neighbours' ends."""
    along = xy[last] - xy[first]
    length = float(np.hypot(*along))
    inner = xy[first + 1 : last] - xy[first]
    if not len(inner):
        return
    across = inner[:, 0] * along[1] - inner[:, 1] * along[0]
    off = np.abs(across) / length if length > _HAIR else np.hypot(inner[:, 0], inner[:, 1])
    furthest = int(np.argmax(off))
    if off[furthest] > _HAIR:
        middle = first + 1 + furthest
        yield from _needed(xy, first, middle)
        yield middle
        yield from _needed(xy, middle, last)


def _lighten(root: ET.Element) -> None:
    """Drop ids that nothing uses, and groups that then say nothing."""
    used = set()
    for element in root.iter():
        for value in element.attrib.values():
            used.update(re.findall(r"#([^)\s]+)", value))
    for element in root.iter():
        name = element.get("id", "")
        if name and name not in used and not _KEPT_ID.search(name):
            del element.attrib["id"]
    for element in root.iter():
        element[:] = _without_bare(element)


def _without_bare(element: ET.Element) -> list[ET.Element]:
    """The children, those of groups without any attribute in the group's place."""
    children: list[ET.Element] = []
    for child in element:
        children += _without_bare(child) if child.tag == "g" and not child.attrib else [child]
    return children


def _inherit(root: ET.Element) -> None:
    """Say once, for the whole drawing, in which letters most of its texts are."""
    root.set("style", ";".join(_LETTERS))
    for text in root.iter("text"):
        own = [part for part in text.get("style", "").split(";") if part not in _LETTERS]
        text.set("style", ";".join(own))


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0") or "0"


def _named(color: re.Match[str]) -> str:
    name = _NAMES.get(color[0])
    return f"var(--{name})" if name else color[0]


def _tell(root: ET.Element, group: str, said: Sequence[str]) -> None:
    """Give each mark of a group its text, and the group a stop for the keyboard."""
    found = next((e for e in root.iter() if e.get("id") == group), None)
    if found is None:
        return
    marks = [e for e in found.iter() if e.tag == "use"] or [e for e in found if e.tag == "path"]
    for mark, text in zip(marks, said, strict=False):
        mark.set("class", "mark")
        ET.SubElement(mark, "title").text = text


def _name(root: ET.Element, prefix: str, title: str) -> None:
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "group")
    root.set("aria-labelledby", f"{prefix}title")
    label = ET.Element("title", {"id": f"{prefix}title"})
    label.text = title
    root.insert(0, label)
