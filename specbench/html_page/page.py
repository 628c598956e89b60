"""report.html: one file with everything in it, for somebody who was not there."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from specbench.charts.plots import slug
from specbench.html_page.page_about import (
    DEFINITIONS,
    about_line,
    command,
    facts,
    question,
    recipe_text,
)
from specbench.html_page.page_answers import cards, headline, sentences
from specbench.html_page.page_charts import absent, drawings, scale
from specbench.html_page.page_parts import Explained, Scene, Toggle, color_of
from specbench.html_page.page_samples import read_pieces, samples
from specbench.html_page.page_svg import COLORS
from specbench.html_page.page_tables import (
    MOST_PROMPTS,
    category_sheet,
    cell_sheet,
    draft_sheet,
    place_of,
    prompt_sheet,
)
from specbench.judgement.advise import Advice
from specbench.judgement.findings import DraftFinding, Finding
from specbench.judgement.unfinished import missing, state_line
from specbench.package import PACKAGE
from specbench.reports.pictures import Picture
from specbench.reports.why import closed_form, why_not_faster
from specbench.reports.why_speed import contexts, floors
from specbench.version import VERSION
from specbench.wording import bounds, fixed, one_line

MOST_SCENES = 6
"""Settings with all their charts on one page; the others are in the files."""


def report_html(advice: Advice, pictures: Sequence[Picture] = ()) -> str:
    """The whole page; `pictures` are the charts that were just written, if any."""
    from jinja2 import Environment, StrictUndefined

    shown = advice.findings[:MOST_SCENES]
    pieces = read_pieces(advice.view.run.folder)
    scenes = [
        _scene(advice, finding, place, len(shown), pictures, pieces)
        for place, finding in enumerate(shown)
    ]
    script = _asset("report.js")
    # Everything is escaped: what is not (charts, style and script) is our own, and so marked.
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    page.lstrip_blocks = True
    context: dict[str, Any] = {
        "advice": advice,
        "view": advice.view,
        "scenes": scenes,
        "contexts": [piece for _, said in contexts(advice) for piece in said],
        "left_out": len(advice.findings) - len(shown),
        "title": f"specbench: {scenes[0].headline}" if scenes else "specbench",
        "question": question(advice.view),
        "about": about_line(advice.view),
        "state": state_line(advice.view),
        "missing": [one_line(text) for text in missing(advice.view)],
        "doubts": [one for one in advice.warnings if one.doubtful],
        "notes": [one for one in advice.warnings if not one.doubtful],
        "facts": list(facts(advice.view)),
        "command": command(advice.view),
        "recipe": recipe_text(advice.view),
        "definitions": DEFINITIONS,
        "version": VERSION,
        "run_id": one_line(str(advice.view.run.manifest.get("run_id") or "")),
        "style": _style(),
        "script": script,
        "policy": _policy(script),
    }
    return page.from_string(_asset("report.html.j2")).render(context)


def _scene(
    advice: Advice,
    finding: Finding,
    place: int,
    of: int,
    pictures: Sequence[Picture],
    pieces: dict[int, str],
) -> Scene:
    view, best = advice.view, finding.best
    title = view.title(finding.setting)
    said, tone = headline(finding)
    speed = best.choice.row.speedup if best and best.choice else None
    charts = drawings(view, finding, place, pictures)
    outputs = samples(view, finding, pieces)
    return Scene(
        key=slug(title) or "all",
        title=title,
        headline=said,
        tone=tone,
        number=f"{fixed(speed.value)}×" if speed else "",
        interval=bounds(speed) if speed else "",
        sentences=sentences(advice, finding),
        scale=scale(view, finding),
        cards=cards(finding),
        drafts=draft_sheet(view, finding),
        cells=cell_sheet(view, finding),
        categories=category_sheet(view, finding),
        prompts=prompt_sheet(view, finding, MOST_PROMPTS // of),
        toggles=_toggles(advice, finding),
        drawings=charts,
        why=_explained(advice, finding, why_not_faster),
        closed=_explained(advice, finding, closed_form),
        floors=_explained(advice, finding, floors),
        samples=outputs,
        no_samples="" if pieces or not outputs else NO_PIECES,
        notes=absent(finding, charts),
    )


NO_PIECES = (
    "The texts of single tokens are not in this folder (pieces.json, which `specbench run` "
    "writes): numbers stand for them."
)


def _toggles(advice: Advice, finding: Finding) -> tuple[Toggle, ...]:
    found = [(place_of(advice.view, one), one) for one in finding.drafts if one.choice]
    return tuple(Toggle(place, one_line(one.block.draft), color_of(place)) for place, one in found)


def _explained(
    advice: Advice,
    finding: Finding,
    part: Callable[[Advice, Finding, DraftFinding], list[Any]],
) -> tuple[Explained, ...]:
    """The pieces on each draft, the best one first."""
    made = [(tuple(part(advice, finding, one)), one is finding.shown) for one in finding.drafts]
    return tuple(Explained(pieces, best) for pieces, best in made if pieces)


def _asset(name: str) -> str:
    return (PACKAGE / "templates" / name).read_text(encoding="utf-8")


def _style() -> str:
    """The style sheet, with the charts' colours in both themes."""
    light, dark = (
        "".join(f"--{name}:{pair[theme]};" for name, pair in COLORS.items()) for theme in (0, 1)
    )
    text = _asset("report.css")
    return text.replace("/* chart colours, light */", light).replace(
        "/* chart colours, dark */", dark
    )


def _policy(script: str) -> str:
    """No network, and no script but our own, whatever a text may hold."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
