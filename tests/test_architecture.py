"""The dependency rule: modules import only from packages above their own, inside functions too."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import fairhorizon

ROOT = Path(fairhorizon.__file__).parent
PACKAGE = "fairhorizon"
# A module imports only from the lines above its own, never from below or from its own line.
FLOOR_PLAN = (
    ("vocabulary", "errors"),
    ("settings", "files", "registry"),
    ("storage",),
    ("data", "metrics", "lbfgs"),
    ("histories", "ranking"),
    ("limits",),
    ("datasets", "config_file"),
    ("rankers", "simulation", "allocation"),
    ("rerank",),
    ("recommenders",),
    ("fcpo",),
    ("lird",),
    ("methods",),
    ("evaluation",),
    ("parallel",),
    ("model",),
    ("studies",),
    ("report",),
    ("service",),
    ("cli",),
    (PACKAGE,),  # its own __init__ and __main__
)
# The same inside the largest packages.
INSIDE = {
    "allocation": (
        ("limit_matrix", "assignment"),
        ("candidates", "steps"),
        ("conflicts", "one_limit"),
        ("best_lists",),
        ("one_list",),
        ("guard", "prices"),
        ("spreading",),
        ("engine",),
    ),
    "fcpo": (
        ("config", "dual", "policies"),
        ("cpo", "networks"),
        ("rollouts", "embeddings", "warm_start"),
        ("surrogates", "serving"),
        ("learner", "fitted"),
        ("training",),
        ("retention",),
        ("online",),
        ("model",),
    ),
    "service": (
        ("settings", "client"),
        ("store",),
        ("budget",),
        ("replica",),
        ("monitoring",),
        ("admin",),
        ("background",),
        ("api",),
        ("dashboard",),
        ("app",),
        ("serving",),
    ),
}
SOURCES = sorted(ROOT.rglob("*.py"))


def module_of(path: Path) -> str:
    """fairhorizon/data/splits.py -> fairhorizon.data.splits; a folder's __init__ keeps its name."""
    return ".".join((PACKAGE, *path.relative_to(ROOT).with_suffix("").parts))


def imported(tree: ast.AST, module: str) -> set[str]:
    """Everything that is imported anywhere in the tree, by absolute dotted name."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")[: -node.level]
                base = ".".join([*above, base] if base else above)
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return names


def part_of(name: str, package: str) -> str | None:
    """The folder or file of a package that a dotted name lies in; None if it lies elsewhere."""
    inner = name.removeprefix(f"{package}.")
    return None if inner == name else inner.split(".")[0]


def violations(source: str, module: str) -> list[str]:
    names = imported(ast.parse(source), module) - {f"{PACKAGE}.__version__"}
    ours = [name for name in sorted(names) if name.split(".")[0] == PACKAGE]
    found = []
    plans = {PACKAGE: FLOOR_PLAN} | {f"{PACKAGE}.{name}": plan for name, plan in INSIDE.items()}
    for package, plan in plans.items():
        level_of = {part: level for level, parts in enumerate(plan) for part in parts}
        # A name of the whole package, such as fairhorizon.Fcpo, is on the last line.
        elsewhere = len(plan) - 1 if package == PACKAGE else None
        own = part_of(module, package)
        own_level = level_of.get(own, elsewhere)
        for name in ours:
            part = part_of(name, package)
            level = level_of.get(part, elsewhere)
            if part != own and None not in (level, own_level) and level >= own_level:
                found.append(f"{module} imports {name}")
    return found


def test_every_public_name_is_where_it_is_looked_for():
    assert "Fcpo" in fairhorizon.__all__
    assert set(fairhorizon.__all__) <= set(dir(fairhorizon))
    for name in fairhorizon.__all__:
        assert hasattr(fairhorizon, name)


@pytest.mark.parametrize("package", ["", *INSIDE])
def test_every_module_has_a_level(package):
    folder = ROOT / package.replace(".", "/")
    found = {path.relative_to(folder).parts[0].removesuffix(".py") for path in folder.rglob("*.py")}
    planned = {part for parts in (INSIDE[package] if package else FLOOR_PLAN) for part in parts}
    assert found - {"__init__", "__main__"} <= planned


def test_imports_go_up_the_plan():
    found = [
        violation
        for path in SOURCES
        for violation in violations(path.read_text(encoding="utf-8"), module_of(path))
    ]
    assert found == []


def import_graph(sources: dict[str, str]) -> dict[str, set[str]]:
    """Which modules each module imports, by the texts of all; a package's own __init__ aside."""
    graph: dict[str, set[str]] = {}
    for module, source in sources.items():
        names = imported(ast.parse(source), module)
        names |= {name.rpartition(".")[0] for name in names}  # `from module import name`
        graph[module] = (names & sources.keys()) - {module}
    return graph


def test_imports_make_no_circle():
    sources = {module_of(path): path.read_text(encoding="utf-8") for path in SOURCES}
    graph = import_graph(sources)
    assert len([*TopologicalSorter(graph).static_order()]) == len(sources)
    circle = {"a.b": "from a.c import x", "a.c": "def f():\n    import a.d", "a.d": "import a.b"}
    with pytest.raises(CycleError):
        TopologicalSorter(import_graph(circle)).prepare()


@pytest.mark.parametrize(
    ("module", "source", "caught"),
    [
        ("metrics.shares", "from fairhorizon.data import Split", True),  # the same line
        ("recommenders.base", "from fairhorizon.fcpo import Fcpo", True),  # below
        ("data.splits", "from fairhorizon import metrics", True),
        ("metrics.accuracy", "def f():\n    from fairhorizon.report import page", True),
        ("data.__init__", "from .. import ranking", True),
        ("report.page", "from fairhorizon import Fcpo", True),
        ("fcpo.warm_start", "from .learner import Learner", True),
        ("service.store.tables", "import fairhorizon.service.budget.leases", True),
        ("fcpo.learner", "from fairhorizon.fcpo.config import P", False),
        ("service.api.lists", "from fairhorizon.service.store.tables import T", False),
        ("data.splits", "from .interactions import Interactions", False),
        ("cli.app", "from fairhorizon import __version__", False),
        ("cli.app", "import numpy, fairhorizonish.data", False),
        ("__main__", "from fairhorizon.cli.app import main", False),
    ],
)
def test_a_planted_violation_is_caught(module, source, caught):
    assert bool(violations(source, f"{PACKAGE}.{module}")) is caught


@pytest.mark.parametrize("command", ["fit", "lists", "service"])
def test_no_command_of_production_imports_a_study(command):
    path = ROOT / "cli" / f"{command}.py"
    names = imported(ast.parse(path.read_text(encoding="utf-8")), module_of(path))
    assert not [name for name in names if part_of(name, PACKAGE) == "studies"]


@pytest.mark.slow
def test_ray_is_imported_in_one_place_and_only_when_asked_for():
    """Ray is an extra that takes seconds to import."""
    trees = {module_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
    on_ray = {
        module
        for module, tree in trees.items()
        if any(name.split(".")[0] == "ray" for name in imported(tree, module))
    }
    assert on_ray == {f"{PACKAGE}.parallel.on_ray"}
    # Nobody else imports this module when it is imported itself: only inside a function.
    for module in trees.keys() - on_ray:
        for node in ast.walk(trees[module]):
            if isinstance(node, ast.FunctionDef):
                node.body = []
        names = imported(trees[module], module)
        assert not (names | {name.rpartition(".")[0] for name in names}) & on_ray, module
