"""What the documents say is there, is there; their examples run."""

import ast
import importlib
import inspect
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer

import fairhorizon
from fairhorizon.recommenders.progress import Listener

ROOT = Path(__file__).parent.parent
HOMES = (ROOT / "src" / "fairhorizon", ROOT / "tests")  # what paths in the documents are below
MAP = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
PYTHON = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "long-run.md").read_text(encoding="utf-8")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# The changelog also names what is gone.
CHECKED = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]
GENERATED = re.compile(r"<!-- (?:results|scale): .*?<!-- (?:scale: )?end -->", re.DOTALL)
REPLACED = re.compile(r"(?i)(?<![a-z])(?:crew|dial|outlook|purse|reaping|reserve|shard)s?(?![a-z])")
SMALL = "synthetic:users=60,items=80,interactions_per_user=20"


def named_in_the_map() -> list[tuple[str, str]]:
    """Pairs (file, name): each `name` belongs to the nearest `file.py` before it on its line."""
    pairs = []
    for line in MAP.splitlines():
        if not line.startswith(("|", "- ", "  ")):
            continue  # only tables and lists point at files
        file = ""
        for word in re.findall(r"`([^`]+)`", line):
            if word.endswith((".py", "/")):
                file = word
                pairs.append((file, ""))
            elif file and re.fullmatch(r"[\w.]+", word):
                pairs.append((file, word))
    return pairs


def home_of(file: str) -> Path:
    """The folder, src/fairhorizon or tests, that has this file."""
    homes = [home for home in HOMES if (home / file).exists()]
    if file.endswith("/"):  # the tests of a room are named by their folder
        homes = [home for home in homes if home.name == "tests"]
    assert len(homes) == 1, f"{file} is in {len(homes)} places"
    return homes[0]


@cache
def functions_of_tests(path: Path) -> set[str]:
    """Read, not imported: a test module is no part of a package."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def resolve(file: str, name: str) -> None:
    """Find a dotted name in the module of a file, as Python would."""
    module = ".".join(("fairhorizon", *Path(file).with_suffix("").parts))
    found: object = importlib.import_module(module)
    for part in name.split("."):
        if inspect.isclass(found) and part in inspect.get_annotations(found):
            return  # a field without a default, which the class itself does not have
        assert hasattr(found, part), f"{file} has no {name}"
        found = getattr(found, part)
    owner = getattr(found, "__module__", module)
    assert not str(owner).startswith("fairhorizon") or owner == module, f"{name} is in {owner}"


def test_the_paper_map_points_at_what_is_there() -> None:
    for file, name in named_in_the_map():
        home = home_of(file)
        if name and home.name == "tests":
            assert name in functions_of_tests(home / file), f"{file} has no {name}"
        elif name:
            resolve(file, name)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("fcpo/training.py", "Trajectories"),  # imported there, defined elsewhere
        ("fcpo/rollouts.py", "PolicyState.step"),  # a word of the file, but no such method
        ("fcpo/rollouts.py", "queues"),
        ("fcpo/learner.py", "Lesson.cost"),
    ],
)
def test_a_name_that_is_not_there_is_caught(file: str, name: str) -> None:
    with pytest.raises(AssertionError):
        resolve(file, name)


def test_every_path_in_a_document_exists() -> None:
    missing: list[tuple[Path, str]] = []
    for document in CHECKED:
        text = document.read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
        missing += [(document, link) for link in links if not (document.parent / link).exists()]
        files = re.findall(r"(?<![\w/.-])((?:[\w-]+/)+[\w-]+\.(?:py|md|json|txt))\b", text)
        homes = (ROOT, document.parent, *HOMES)
        missing += [
            (document, file) for file in files if not any((home / file).exists() for home in homes)
        ]
    assert missing == []


def test_every_page_that_the_code_names_exists() -> None:
    """In messages, comments and docstrings."""
    files = [
        path
        for folder in ("src", "benchmarks", "examples")
        for path in (ROOT / folder).rglob("*.py")
    ]
    named = {
        page
        for path in files
        for page in re.findall(r"\bdocs/[\w/-]+\.(?:md|png|svg)", path.read_text(encoding="utf-8"))
    }
    assert [page for page in named if not (ROOT / page).exists()] == []


def test_every_public_name_in_a_document_exists() -> None:
    for document in CHECKED:
        names = set(re.findall(r"\bfh\.(\w+)", document.read_text(encoding="utf-8")))
        assert names - set(fairhorizon.__all__) == set(), document


def test_every_test_named_in_a_document_exists() -> None:
    tests = (ROOT / "tests").rglob("test_*.py")
    known = {name for path in tests for name in (path.stem, *functions_of_tests(path))}
    for document in CHECKED:
        assert set(re.findall(r"\btest_\w+", document.read_text(encoding="utf-8"))) <= known


def test_the_map_has_every_equation_and_every_line() -> None:
    equations, rest = MAP.split("## Algorithm 1")
    assert re.findall(r"^\| (\d+) \|", equations, re.MULTILINE) == [str(n) for n in range(1, 19)]
    lines: set[int] = set()
    for first, last in re.findall(r"^\| (\d+)(?:-(\d+))? \|", rest, re.MULTILINE):
        lines |= set(range(int(first), int(last or first) + 1))
    assert lines == set(range(1, 24))


def test_the_examples_of_the_page_on_python_run(capsys: pytest.CaptureFixture[str]) -> None:
    """The second goes on with what the first has made."""
    evaluated, long_run, environment = examples(PYTHON)
    assert max(len(lines(evaluated)), len(lines(long_run))) <= 10
    names: dict[str, object] = {}
    small = 'alpha_prime=0.4, warm_start=("ease", "itemknn"), rounds=2)'
    run(evaluated, names, {'"ml-100k"': f'"{SMALL}"', "alpha_prime=0.4)": small})
    printed = [float(number) for number in capsys.readouterr().out.split()]
    for level, ndcg, popular in zip((0.4, 0.25), printed[::2], printed[1::2], strict=True):
        assert 0 < ndcg < 1
        assert 0 < popular <= level
    run(long_run, names, {"range(400)": "range(52)"})
    ndcg, popular, violations = map(float, capsys.readouterr().out.split())
    assert 0 < ndcg < 1
    assert 0 < popular <= 0.4
    assert violations == 0
    run(environment, names, {})
    assert sum(names["info"]["costs"]) == 1  # a showing is of the group or it is not


def test_the_readme_is_short_and_has_one_table_of_results() -> None:
    assert len(README.split()) < 900
    assert README.count("<!-- results:") == 1


def test_the_documents_stay_short() -> None:
    """Generated tables do not count, nor does the reference, which docstrings fill."""
    generated = [*ROOT.glob("docs/reference/*.md"), *ROOT.glob("docs/results/paper/ml-*.md")]
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path not in generated]
    written = [GENERATED.sub("", path.read_text(encoding="utf-8")) for path in pages]
    assert sum(len(text.split()) for text in written) <= 30_000
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()) < 100


def test_the_code_has_no_word_that_the_glossary_has_replaced() -> None:
    files = (ROOT / "src").rglob("*.py")
    found = {
        f"{path.relative_to(ROOT)}: {word}"
        for path in files
        for word in REPLACED.findall(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_what_the_readme_says_of_its_table() -> None:
    content = json.loads((ROOT / "docs/results/data/long-ml-100k.json").read_text(encoding="utf-8"))
    over = {row["method"]: row["metrics"]["violation_share"]["mean"] for row in content["rows"]}
    kept = {method for method, share in over.items() if share == 0}
    assert {"fcpo", *(method for method in over if method.endswith("+control"))} <= kept
    assert not any(method.endswith(("+quota", "+pmmf", "+fairco", "+tfrom")) for method in kept)
    assert over["stack+quota"] == 1
    rival = {row["rival"]: row for row in content["differences"]}
    assert rival["stack+quota"]["high"] < 0 < rival["fcpo:start"]["low"]


@pytest.mark.slow
def test_the_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = examples(README)
    assert len(lines(example)) <= 10
    log = fairhorizon.synthetic_market(SMALL).interactions
    sales = {
        "customer": [f"u{code}" for code in log.users],
        "sku": [f"sku{code}" for code in log.items],
        "ts": log.timestamps,
    }
    sizes = ["small" if code % 2 else "big" for code in range(log.n_items)]
    items = {"sku": [f"sku{code}" for code in range(log.n_items)], "seller_size": sizes}
    names: dict[str, Any] = {"df": pl.DataFrame(sales), "items_df": pl.DataFrame(items)}
    run(example, names, {})
    assert " 1. sku" in capsys.readouterr().out
    lists = names["model"].recommend(k=10)
    assert lists.columns == ["user", "rank", "item", "score", "value"]
    popular = set(pl.DataFrame(sales)["sku"].value_counts(sort=True)["sku"].head(16))
    assert lists["item"].is_in(popular).mean() <= 0.45  # equal counts: who is 16th is open
    small = {f"sku{code}" for code in range(1, log.n_items, 2)}
    assert lists["item"].is_in(small).mean() >= 0.3


def test_the_example_of_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = examples(GUIDE)
    quick = {
        "synthetic:users=500,items=400": SMALL,
        'PRESETS["strong"]': 'PRESETS["strong"].model_copy(update={"warm_start": ("ease",)})',
        "steps=100": "steps=22",
    }
    run(example, {}, quick)
    ndcg, popular, ours = map(float, capsys.readouterr().out.split())
    assert 0 < ndcg < 1
    assert 0 < popular <= 0.4
    assert 0.15 <= ours < 1


def test_the_example_of_resuming_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both fits: the first is stopped after its first round, so only the second can finish."""
    (example,) = examples((ROOT / "docs" / "training.md").read_text(encoding="utf-8"))
    fitted = "model = fh.Fcpo(config).fit(parts, "
    quick = {
        '"ml-100k"': f'"{SMALL}"',
        "alpha_prime=0.4)": 'alpha_prime=0.4, warm_start=("ease",), rounds=2, always_train=True)',
        f'{fitted}checkpoint="runs/a")': f'{fitted}checkpoint="runs/a", listener=listener)',
    }
    stopping = Listener()
    stopping.stop = True
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"listener": stopping}
    run(example, names, quick)
    model = names["model"]
    assert isinstance(model, fairhorizon.Fcpo)
    assert model.finished_
    assert [report.round for report in model.history_] == [1, 2]


def test_the_guide_explains_every_option_and_every_column() -> None:
    """The options that it shares with a comparison it may use, those of its own it has to name."""
    from fairhorizon.cli.app import app
    from fairhorizon.studies.step_record import SCHEMA

    table = GUIDE.split("## What is recorded")[1].split("\n## ")[0]
    assert set(SCHEMA) <= set(re.findall(r"`(\w+)`", table))
    commands = typer.main.get_command(app).commands
    known, shared = (
        {
            option
            for parameter in commands[name].params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for name in ("longterm", "compare")
    )
    said = set(re.findall(r"--[a-z][a-z-]*", GUIDE))
    assert known - shared <= said <= known


def examples(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document, re.DOTALL)


def lines(example: str) -> list[str]:
    return [line for line in example.splitlines() if line.strip()]


def run(example: str, names: dict[str, object], quicker: dict[str, str]) -> None:
    for long, short in quicker.items():
        assert long in example
        example = example.replace(long, short)
    exec(compile(example, "example", "exec"), names)


def test_every_command_is_known_and_on_its_page() -> None:
    from fairhorizon.cli.app import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    used = set(re.findall(r"^ *fairhorizon (\w+)", COMMANDS, re.MULTILINE))
    assert used == known - {"demo"}  # that is `make demo`
