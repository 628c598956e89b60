"""The floors of the package: a module imports from lower floors, or from its left on its own."""

from __future__ import annotations

import ast
import statistics
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "specbench"
TESTS = ROOT / "tests"
HEAVY = {"torch", "transformers", "datasets", "pandas", "matplotlib", "scipy", "pyarrow", "jinja2"}


def placed(text: str) -> list[str]:
    """Modules in order, from `package: module module …`; `specbench:` stands for no package."""
    names, package = [], ""
    for word in text.split():
        if word.endswith(":"):
            package = "" if word == "specbench:" else word.removesuffix(":") + "."
        else:
            names.append(package + word)
    return names


FLOORS: list[tuple[list[str], set[str]]] = [
    (["version", "errors", "signs", "package"], set()),
    (
        placed(
            """
            specbench: records kinds engine_table
            closed_form: cycle_law inverse_law run_law speed_law theory trace
            settings: gamma
            estimators: intervals
            specbench: wording
            estimators: sums stats scored_text replay iid_counts iid
            laws: faults law_tests law_distance law_stats text_tests verified
            estimators: decompose
            latency: latency_parts
            estimators: policies
            latency: predict
            estimators: draft_lengths
            latency: ranking
            estimators: changes gates
            settings: forward_modes
            latency: roofline memory_need step_forms latency_model device_spec speed_map
            """
        ),
        {"numpy"},
    ),
    (
        placed(
            """
            settings: places recipe_values recipe_faults recipe_check recipe_parts
                recipe_specs recipe engine_limits recipe_load
            prompt_sets: prompt_files
            settings: model_refs
            prompt_sets: prompt_rows prompt_hub prompts long_prompts
            result_files: files lock schema csv_columns checked contradictions rows results
                cycle_sums cells acceptance matched score_files scored_cells recovery summary
                journal rank_files rank_read map_files
            """
        ),
        {"numpy", "pydantic", "pydantic_core", "yaml"},
    ),
    (
        placed(
            """
            models: timing sampling attention kvcache random_models loading lm products packed
                static hidden eagle_head forwards state environment device_rates shapes
            """
        ),
        {"numpy", "torch", "transformers", "psutil", "safetensors"},
    ),
    (
        placed(
            """
            drafts: base watched options pairing hf self_draft synthetic lookup ngram automaton
                suffix parts targets_kv layerskip snap sparse_cache sparsekv low_bits bits_and_bytes
                quantized eagle_chains eagle
                external
            specbench: drafts
            """
        ),
        {"torch"},
    ),
    (
        placed(
            """
            serving: faults sse transport steps counts replies dialects metrics ask service
                hosting llamacpp_host vllm_probe vllm_host vllm_command
            specbench: serving
            engines: base failures rows selftest loop torch_engine probe arguments served
                server_engine llamacpp_engine vllm_drafts vllm_engine generate_tape
                transformers_engine
            specbench: engines
            """
        ),
        {"torch", "transformers"},
    ),
    (
        placed(
            """
            measure: interrupt opening memory_check preflight manifest destination live progress
                score score_starts scoring scorer sweep ab rank_texts rank
            verification: verify_exact verify_sequence verify_text verify_passes verify_greedy
                verify_work verify_engine verify verify_record engine_texts
            measure: doctor pair_check time_map profiling
            training: plan losses optimizers store texts teacher students eagle_student held_out
                train open view
            """
        ),
        {"numpy", "torch", "transformers", "psutil", "rich", "safetensors"},
    ),
    (["*"], {"numpy", "rich"}),
    (["cli"], {"typer"}),
]
"""Floors 0 to 5, 6a, 6b (all that is left) and 7, each with the outside imports it may make."""


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(p for p in parts if p != "__init__"), path


def floor_of(module: str) -> tuple[int, int]:
    """Floor and place on it; floor 6b has no order of its own."""
    if module.split(".")[0] == "cli":
        return len(FLOORS) - 1, 0
    for number, (names, _) in enumerate(FLOORS):
        if module in names:
            return number, names.index(module)
    return len(FLOORS) - 2, 0


def imports(path: Path, *, top_level: bool) -> Iterator[str]:
    """Full names of what a file imports, at module level or anywhere."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            known = node.module.split(".")[0] == "specbench"
            names = (f"{node.module}.{a.name}" for a in node.names)
            yield from names if known else [node.module]


def inner(name: str, known: set[str]) -> str | None:
    """The module of ours that an imported name belongs to."""
    short = name.removeprefix("specbench").removeprefix(".")
    while short:
        if short in known:
            return short
        short = short.rpartition(".")[0]
    return None


def test_no_module_imports_from_a_higher_floor_or_its_right() -> None:
    known = {name for name, _ in modules()}
    broken = []
    for name, path in modules():
        for imported in imports(path, top_level=False):
            other = inner(imported, known) if imported.split(".")[0] == "specbench" else None
            if other and other != name and not _allowed(name, other):
                broken.append(f"{name} imports {other}")
    assert not broken, "\n".join(broken)


def _allowed(name: str, other: str) -> bool:
    (floor, place), (below, left) = floor_of(name), floor_of(other)
    return below < floor or (below == floor and (left < place or floor >= len(FLOORS) - 2))


def test_floors_that_read_files_never_import_torch() -> None:
    """Floor 6b works on a laptop from the files alone: no torch, not even inside a function."""
    for name, path in modules():
        if floor_of(name)[0] == len(FLOORS) - 2:
            found = {i.split(".")[0] for i in imports(path, top_level=False)}
            assert not found & {"torch", "transformers", "datasets"}, name


def test_outside_imports_at_module_level_are_those_of_the_floor() -> None:
    standard = __import__("sys").stdlib_module_names
    broken = []
    for name, path in modules():
        allowed = FLOORS[floor_of(name)[0]][1]
        for imported in imports(path, top_level=True):
            root = imported.split(".")[0]
            if root not in standard and root not in allowed | {"specbench", "__future__"}:
                broken.append(f"{name} imports {root}")
    assert not broken, "\n".join(broken)


def test_every_imported_package_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [d for n, e in project["optional-dependencies"].items() if n != "dev" for d in e]
    every = [*project["dependencies"], *extras]
    declared = {d.split(">")[0].split("=")[0].lower() for d in every}
    names = {"yaml": "pyyaml", "pydantic_core": "pydantic", "huggingface_hub": "transformers"}
    standard = __import__("sys").stdlib_module_names
    for name, path in modules():
        for imported in imports(path, top_level=False):
            root = imported.split(".")[0]
            if root not in standard and root not in ("specbench", "__future__"):
                assert names.get(root, root) in declared, f"{name}: {root}"


@pytest.mark.parametrize("limit", [300])
def test_modules_are_small(limit: int) -> None:
    sizes = {n: len(p.read_text(encoding="utf-8").splitlines()) for n, p in modules()}
    assert not {n: s for n, s in sizes.items() if s > limit}
    assert statistics.median(sizes.values()) <= 170


def test_files_of_tests_are_small() -> None:
    sizes = {p.name: len(p.read_text(encoding="utf-8").splitlines()) for p in TESTS.glob("*.py")}
    assert not {name: size for name, size in sizes.items() if size > 400}


def test_functions_are_small() -> None:
    lengths: list[int] = []
    for name, path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and not name.startswith("cli"):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                size -= len((ast.get_docstring(node) or "").splitlines())
                assert size <= 50, f"{name}.{node.name} has {size} lines"
                lengths.append(size)
    assert statistics.quantiles(lengths, n=10)[-1] <= 30


def test_no_bare_except_and_no_pickle() -> None:
    for name, path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None, name
        assert "pickle" not in path.read_text(encoding="utf-8"), name
