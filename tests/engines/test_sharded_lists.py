"""Lists over shards of users on Ray are those of one process. Ray is started in conftest.py."""

from pathlib import Path
from typing import Any

import numpy as np

from fairhorizon.cli.app import run
from fairhorizon.experiments.run_shards import ListsOfRun, served_in_shards
from fairhorizon.experiments.runs import Run
from fairhorizon.vocabulary import Protocol

MARKET = "--data=synthetic:users=50,items=60,interactions_per_user=15"


def test_lists_on_ray_are_those_of_one_process(cluster: Any, tmp_path: Path) -> None:  # noqa: ARG001
    from fairhorizon.engines.on_ray import OnRay

    fit = ["fit", "ease+lists", MARKET, "--alpha-prime=0.3", "--set=lists.spread=null"]
    assert run([*fit, "--out", str(tmp_path / "run")]) == 0
    lists = ListsOfRun(tmp_path / "run", 5, Protocol.STANDARD)
    model, dataset = lists.model(), Run(tmp_path / "run").data().open()
    one = model.served(lists.scenario(model, dataset), length=5)
    with OnRay(jobs=2) as engine:
        made = served_in_shards(lists, model, dataset.log.n_users, engine)
    assert made is not None
    assert made.shards == 2
    assert max(one.prices.values()) > 0
    np.testing.assert_array_equal(made.served.lists, one.lists)
    assert dict(made.served.prices) == dict(one.prices)


def test_an_audit_on_ray_says_the_same(cluster: Any, tmp_path: Path) -> None:  # noqa: ARG001
    run_folder, lists = tmp_path / "run", tmp_path / "lists.csv"
    assert run(["fit", "popularity+quota@0.4", MARKET, f"--out={run_folder}"]) == 0
    assert run(["recommend", str(run_folder), f"--out={lists}"]) == 0
    words = ["audit", str(lists), MARKET, "--k=3,7", "--limit=popular<=0.4", "--name=shop"]
    for engine in ("processes", "ray"):
        assert run([*words, f"--engine={engine}", f"--json={tmp_path / engine}"]) == 0
    assert (tmp_path / "ray").read_text() == (tmp_path / "processes").read_text()
    assert '"shop"' in (tmp_path / "ray").read_text()
