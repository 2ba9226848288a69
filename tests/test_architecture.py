"""The dependency rule: imports go down the levels, never up, nor across between folders of one."""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

import fairhorizon

ROOT = Path(fairhorizon.__file__).parent
PACKAGE = "fairhorizon"
# The floor plan: a module imports only from the rooms above its own, never from below or across.
FLOOR_PLAN = (
    ("vocabulary", "errors"),
    ("settings", "files"),
    ("storage",),
    ("data", "metrics", "optim"),
    ("histories", "ranking"),
    ("exposure",),
    ("rankers", "environment", "allocation"),
    ("rerank", "policy"),
    ("agents",),
    ("results",),
    ("evaluation",),
    ("production",),
    ("engines",),
    ("experiments",),
    ("report",),
    ("service",),
    ("cli",),
    (PACKAGE,),  # its own __init__ and __main__
)
# The same inside the largest rooms.
INSIDE = {
    "agents": (
        ("abilities", "progress", "retraining", "served", "server"),
        ("tasks", "sharding"),
        ("base",),
        ("validation", "steps"),
        ("walk", "lists"),
        ("ranked", "lird", "fcpo"),
        ("methods",),
    ),
    "agents.fcpo": (
        ("looking_ahead",),
        ("config",),
        ("experts",),
        ("serving",),
        ("learning",),
        ("fitted", "server"),
        ("outlook",),
        ("model",),
    ),
}
LEVEL_OF = {station: level for level, names in enumerate(FLOOR_PLAN) for station in names}
COMMANDS = (
    *("fit", "evaluate", "recommend", "methods", "compare", "frontier", "levels", "longterm"),
    *("ablation", "efficiency", "demo", "audit", "tune", "data", "init"),
)
# The service stands on production, which is a stack of its own.
SERVICE_COMMANDS = ("serve", "load", "export", "backup", "forget", "keys", "ledger")
ON_RAY = f"{PACKAGE}.engines.on_ray"
SOURCES = sorted(ROOT.rglob("*.py"))


def module_of(path: Path) -> str:
    """fairhorizon/data/splits.py -> fairhorizon.data.splits; a folder's __init__ keeps its name."""
    return ".".join((PACKAGE, *path.relative_to(ROOT).with_suffix("").parts))


def imported(source: str, module: str) -> set[str]:
    """Everything the source imports, wherever in the file, by absolute dotted name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")[: -node.level]
                base = ".".join([*above, base] if base else above)
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return names


def station(name: str) -> str:
    """The folder or file below the package that a dotted name of ours lies in."""
    first = name.split(".")[1:2]
    return first[0] if first and first[0] in LEVEL_OF else PACKAGE


def ours(names: set[str]) -> set[str]:
    return {name for name in names if name.split(".")[0] == PACKAGE} - {f"{PACKAGE}.__version__"}


def violations(source: str, module: str) -> list[str]:
    here = station(module)
    names = sorted(ours(imported(source, module)))
    upwards = [
        name
        for name in names
        if station(name) != here and LEVEL_OF[station(name)] >= LEVEL_OF[here]
    ]
    for room, levels in INSIDE.items():
        level_of = {part: level for level, parts in enumerate(levels) for part in parts}
        own = part_of(module, room)
        if own in level_of:
            upwards += [
                name
                for name in names
                if (part := part_of(name, room)) in level_of
                and part != own
                and level_of[part] >= level_of[own]
            ]
    return [f"{module} imports {name}" for name in upwards]


def part_of(name: str, room: str) -> str | None:
    """What of a room a dotted name lies in; None if it lies elsewhere."""
    inner = name.removeprefix(f"{PACKAGE}.{room}.")
    return None if inner == name else inner.split(".")[0]


def stations_used_by(folder: str) -> set[str]:
    names: set[str] = set()
    for path in SOURCES:
        if station(module_of(path)) == folder:
            names |= ours(imported(path.read_text(encoding="utf-8"), module_of(path)))
    return {station(name) for name in names} - {folder}


@cache
def imports_of_all() -> dict[str, set[str]]:
    """Which of our modules each of them imports when it runs, not only for its types."""
    modules = {module_of(path).removesuffix(".__init__"): path for path in SOURCES}
    graph = {}
    for module, path in modules.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
                node.body = [ast.Pass()]
        names = ours(imported(ast.unparse(tree), module))
        homes = {name if name in modules else name.rpartition(".")[0] for name in names}
        graph[module] = (homes & set(modules)) - {PACKAGE, module}
    return graph


def depth(module: str, graph: dict[str, set[str]]) -> int:
    """How many modules are on the longest chain of imports that begins with this one."""
    known: dict[str, int] = {}

    def measured(name: str) -> int:
        if name not in known:
            known[name] = 1 + max((measured(other) for other in graph[name]), default=0)
        return known[name]

    return measured(module)


def test_every_public_name_is_where_it_is_looked_for():
    assert "Fcpo" in fairhorizon.__all__
    assert set(fairhorizon.__all__) <= set(dir(fairhorizon))
    for name in fairhorizon.__all__:
        assert hasattr(fairhorizon, name)


def test_every_folder_has_a_level():
    found = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in SOURCES}
    assert found - {"__init__", "__main__"} <= set(LEVEL_OF)
    assert found >= {"data", "optim", "environment", "policy", "agents"}


@pytest.mark.parametrize("room", INSIDE)
def test_every_part_of_a_room_has_a_level(room):
    folder = ROOT / room.replace(".", "/")
    found = {path.relative_to(folder).parts[0].removesuffix(".py") for path in folder.rglob("*.py")}
    assert found - {"__init__"} == {part for parts in INSIDE[room] for part in parts}


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_imports_go_down(path):
    assert violations(path.read_text(encoding="utf-8"), module_of(path)) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_no_deep_stack_of_imports(command):
    """Modules on the longest chain of imports, those inside functions included."""
    assert 5 < depth(f"{PACKAGE}.cli.{command}", imports_of_all()) < 22


@pytest.mark.parametrize("command", SERVICE_COMMANDS)
def test_the_service_is_no_deep_stack_of_imports(command):
    """Modules of the service on the longest chain of imports."""
    graph = {
        module: {other for other in others if station(other) == "service"}
        for module, others in imports_of_all().items()
    }
    assert 2 < depth(f"{PACKAGE}.cli.{command}", graph) < 18


def test_the_service_imports_no_experiment():
    assert stations_used_by("service") & {"experiments", "evaluation", "engines"} == set()


def test_ray_is_imported_by_the_engine_on_it_and_that_by_whoever_is_asked_for_it():
    """Ray is an extra that takes seconds to import."""
    using = {
        module_of(path): imported(path.read_text(encoding="utf-8"), module_of(path))
        for path in SOURCES
    }
    of_ray = [module for module, names in using.items() if any(map(is_of_ray, names))]
    assert of_ray == [ON_RAY]
    asking = [m for m, names in using.items() if any(n.startswith(ON_RAY) for n in names)]
    assert asking == [f"{PACKAGE}.engines.opening"]
    tree = ast.parse((ROOT / "engines" / "opening.py").read_text(encoding="utf-8"))
    at_top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = imported(ast.unparse(ast.Module(at_top, [])), f"{PACKAGE}.engines.opening")
    assert not any(name.startswith(ON_RAY) for name in names)


def is_of_ray(name: str) -> bool:
    return name.split(".")[0] == "ray"


@pytest.mark.parametrize(("name", "caught"), [("ray", True), ("ray.util", True), ("rays", False)])
def test_an_import_of_ray_is_recognised(name, caught):
    assert is_of_ray(*imported(f"def f():\n    import {name}", "x")) is caught


def test_depth_counts_the_longest_chain():
    assert depth("a", {"a": {"b", "c"}, "b": {"c"}, "c": {"d"}, "d": set()}) == 4


def test_class_names_are_unique():
    homes: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), []).append(module_of(path))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_modules_and_functions_are_small():
    for path in SOURCES:
        source = path.read_text(encoding="utf-8")
        # a migration is a list of columns that is never changed again
        assert source.count("\n") <= 300 or "migrations" in path.parts, path
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 60, f"{path} {node.name}"


def test_nobody_above_the_agents_asks_for_a_concrete_one():
    concrete = {"Fcpo", "Lird", "Ranked", "FcpoServer", "LirdServer", "RankedServer"}
    for path in SOURCES:
        if LEVEL_OF[station(module_of(path))] > LEVEL_OF["agents"]:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                    names = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                    assert not names & concrete, f"{path} line {node.lineno}"


def test_optim_knows_torch_and_nothing_of_ours():
    assert stations_used_by("optim") == set()
    outside = {
        name.split(".")[0]
        for path in (ROOT / "optim").glob("*.py")
        for name in imported(path.read_text(encoding="utf-8"), module_of(path))
    }
    assert outside - set(sys.stdlib_module_names) - {PACKAGE} == {"torch"}


def test_metrics_see_arrays_only():
    assert stations_used_by("metrics") <= {"errors"}


def test_the_environment_is_given_arrays_never_a_model():
    allowed = {"data", "errors", "exposure", "histories", "settings", "vocabulary"}
    assert stations_used_by("environment") <= allowed


# Modules of report that read results alone: nothing that trains, evaluates or runs a study.
READS_RESULTS = ("ablation", "comparison", "efficiency", "frontier", "grid", "levels", "paper")


@pytest.mark.parametrize("name", READS_RESULTS)
def test_a_report_reads_results_only(name):
    path = ROOT / "report" / f"{name}.py"
    names = ours(imported(path.read_text(encoding="utf-8"), module_of(path)))
    allowed = {"errors", "files", "metrics", "report", "results", "vocabulary"}
    assert {station(name) for name in names} <= allowed


def test_dials_need_methods_and_results_only():
    path = ROOT / "experiments" / "dials.py"
    names = ours(imported(path.read_text(encoding="utf-8"), module_of(path)))
    assert {name.rpartition(".")[0] for name in names} == {
        f"{PACKAGE}.agents.methods",
        f"{PACKAGE}.metrics.shares",
        f"{PACKAGE}.results.studies",
    }


def test_results_need_nothing_that_computes():
    assert stations_used_by("results") <= {"errors", "vocabulary"}


@pytest.mark.parametrize(
    ("module", "source", "caught"),
    [
        ("optim.dual", "from fairhorizon.data import Split", True),  # across
        ("environment.gym", "from fairhorizon.policy.actor import Proposal", True),
        ("environment.gym", "import fairhorizon.rankers.mf", True),
        ("data.splits", "from fairhorizon import metrics", True),
        ("policy.actor", "from fairhorizon.agents import Fcpo", True),  # up
        ("metrics.accuracy", "def f():\n    from fairhorizon.report import page", True),
        ("data.splits", "from ..agents.base import Server", True),
        ("data.__init__", "from .. import ranking", True),
        ("report.page", "if True:\n    from fairhorizon import fit_everything", True),
        ("errors", "from fairhorizon.data import Split", True),
        ("agents.fcpo.experts.fitting", "from ..learning.cpo import Update", True),  # inside
        ("agents.fcpo.serving.calibration", "import fairhorizon.agents.fcpo.model", True),
        ("agents.lists.item_lists", "import fairhorizon.agents.fcpo.config", True),
        ("agents.lird.model", "from fairhorizon.agents.fcpo.config import PRESETS", True),
        ("agents.base", "def f():\n    from fairhorizon.agents.methods import build", True),
        ("allocation.joint_lists", "from fairhorizon.agents.base import Server", True),
        ("agents.fcpo.model", "from fairhorizon.data import Split", False),  # down
        ("agents.fcpo.learning.cpo", "from fairhorizon.agents.fcpo.config import P", False),
        ("agents.fcpo.config", "from fairhorizon.rankers.mf import MfConfig", False),
        ("optim.dual", "from fairhorizon.errors import ConfigError", False),
        ("data.splits", "from fairhorizon.data.interactions import Interactions", False),
        ("data.splits", "from .interactions import Interactions", False),
        ("data.__init__", "from . import splits", False),
        ("cli.app", "from fairhorizon import __version__", False),
        ("cli.app", "import numpy, fairhorizonish.data", False),
        ("__main__", "from fairhorizon.cli.app import main", False),
    ],
)
def test_a_planted_violation_is_caught(module, source, caught):
    assert bool(violations(source, f"{PACKAGE}.{module}")) is caught
