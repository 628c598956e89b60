"""A check as JUnit XML: a suite per draft and setting, a case per limit."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as Xml

from specbench.comparison.check import Checked, name_of_block
from specbench.comparison.check_plan import Gated
from specbench.comparison.check_words import broken, found, limit, title, undecided
from specbench.estimators.gates import INCONCLUSIVE, PASS, REGRESSION, Gate
from specbench.judgement.view import mapping
from specbench.wording import one_line


def junit(checked: Checked, *, inconclusive_passes: bool = False) -> str:
    """The file's text: a regression is a failure, the rest that does not pass an error.

    With `inconclusive_passes` what is inconclusive is skipped, so that dashboards tell the three
    apart; what is missing stays an error.
    """
    blocks: dict[tuple[object, ...], list[Gated]] = {}
    for cell in checked.cells:
        blocks.setdefault(cell.block, []).append(cell)
    every = [gate for cell in checked.cells for gate in cell.gates]
    root = Xml.Element("testsuites", {"name": "specbench", **_counts(every, inconclusive_passes)})
    for cells in blocks.values():
        _suite(root, checked, cells, inconclusive_passes)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, "unicode") + "\n"


def _counts(gates: Sequence[Gate], passes: bool) -> dict[str, str]:
    failed = sum(gate.decided == REGRESSION for gate in gates)
    rest = sum(gate.decided not in (PASS, REGRESSION) for gate in gates)
    skipped = sum(gate.decided == INCONCLUSIVE for gate in gates) if passes else 0
    open_ = {"errors": str(rest - skipped)} | ({"skipped": str(skipped)} if passes else {})
    return {"tests": str(len(gates)), "failures": str(failed), **open_}


def _suite(root: Xml.Element, checked: Checked, cells: Sequence[Gated], passes: bool) -> None:
    manifest, name = checked.side.run.manifest, _text(name_of_block(checked, cells[0]))
    gates = [gate for cell in cells for gate in cell.gates]
    suite = Xml.SubElement(root, "testsuite", {"name": name, **_counts(gates, passes), "time": "0"})
    started = str(manifest.get("started") or "").removesuffix("Z")
    if started:
        suite.set("timestamp", _text(started))
    about = Xml.SubElement(suite, "properties")
    settings = mapping(manifest, "settings")
    facts = {"run_id": manifest.get("run_id"), "num_prompts": cells[0].prompts}
    facts |= {key: settings.get(key) for key in ("device", "dtype", "threads")}
    for key, value in facts.items():
        if value is not None:
            Xml.SubElement(about, "property", name=key, value=_text(str(value)))
    for cell in cells:
        for gate in cell.gates:
            _case(suite, checked, f"{name}.gamma_{cell.gamma}", gate, passes)


def _case(suite: Xml.Element, checked: Checked, where: str, gate: Gate, passes: bool) -> None:
    name = f"{title(gate)}: {limit(gate)}"
    case = Xml.SubElement(suite, "testcase", classname=where, name=_text(name), time="0")
    numbers = {"value": gate.found.value, "low": gate.found.low, "high": gate.found.high}
    known = {key: value for key, value in numbers.items() if value is not None}
    if known:
        about = Xml.SubElement(case, "properties")
        for key, value in known.items():
            Xml.SubElement(about, "property", name=key, value=repr(float(value)))
    if gate.decided == REGRESSION:
        said = {"type": "regression", "message": _text(f"{found(gate)}, limit {limit(gate)}")}
        Xml.SubElement(case, "failure", said).text = _text(broken(gate))
    elif gate.decided != PASS:
        said = {"message": _text(undecided(checked, gate))}
        if passes and gate.decided == INCONCLUSIVE:
            Xml.SubElement(case, "skipped", said)
        else:
            Xml.SubElement(case, "error", {"type": gate.decided, **said})


def _text(text: str) -> str:
    """Text that XML can carry: control characters and lone surrogates have no spelling in it."""
    return "".join(c for c in one_line(text) if c.isprintable() and not "\ud800" <= c <= "\udfff")
