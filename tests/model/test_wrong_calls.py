"""Calls from Python with arguments of another kind: an error that says what to give."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import fairhorizon as fh
from fairhorizon.errors import FairHorizonError
from fairhorizon.limits.language import Limit

ROWS = pl.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "time": [1, 2]})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.recommend(["c1"], k=1.5), "k = 1.5 is no whole number (give 1 or more)"),
        (lambda m: m.recommend(["c1"], k="5"), "k = '5' is no whole number (give 1 or more)"),
        (lambda m: m.recommend(["c1"], k=True), "k = True is no whole number (give 1 or more)"),
        (lambda m: m.recommend(1.5), "what should be ids is of the type float (give a list of the"),
        (lambda m: m.recommend([["c1"]]), "['c1'] is no id (give a list of ids, as in"),
        (lambda m: m.recommend(histories=["a1"]), "histories is of the type list (give {name: ["),
        (lambda m: m.recommend(histories={"n": None}), "what should be ids is of the type NoneTyp"),
        (lambda m: m.recommend(["c1"], limits=[0.4]), "0.4 is no limit (give a text, as in 'popul"),
        (lambda m: m.recommend(["c1"], limits=0.4), "0.4 is no limit (give a text, as in 'popular"),
        (lambda m: m.recommend(["c1"], limits=["popular<=40"]), "'popular<=40', position 10: '40'"),
        (lambda m: m.explain("c1", k="3"), "k = '3' is no whole number (give 1 or more)"),
        (lambda m: m.explain(["c1"]), "['c1'] is no id (give a list of ids"),
        (lambda m: m.save(None), "the path is of the type NoneType (give it as text)"),
        (lambda m: m.save(__file__), "is no folder (name a new one)"),
        (lambda _: fh.open_model(None), "the path is of the type NoneType (give it as text)"),
        (lambda _: fh.fit("synthetic", None), "None is no method (give its name, as in 'fcpo')"),
        (lambda _: fh.fit("synthetic", 7), "7 is no method (give its name, as in 'fcpo')"),
        (lambda _: fh.fit("synthetic", "ease", seed="x"), "seed = 'x' is no whole number (give o"),
        (lambda _: fh.fit("synthetic", "ease", settings="l2"), "settings is of the type str (give"),
        (lambda _: fh.fit("synthetic", limits=[0.4]), "0.4 is no limit (give a text, as in"),
        (lambda _: fh.EaseConfig(l2="a"), "l2=a: give a number"),
        (lambda _: fh.EaseConfig(l2=-1), "l2=-1: give a number above 0"),
        (lambda _: fh.FcpoConfig(pmf={"dim": 0}), "pmf.dim=0: give at least 1"),
        (lambda _: fh.Quota(shares=0.2), "there is no shares (but share"),
        (lambda _: fh.split(ROWS), "the log is of the type DataFrame (read it first: fh.split(fh."),
        (lambda _: fh.synthetic_market(5), "the source is of the type int (give it as text, as in"),
        (lambda _: fh.synthetic_market("real"), "there is no 'real' (there are synthetic, "),
    ],
)
def test_an_argument_of_another_kind_is_refused(
    model: fh.Model, call: Callable[[fh.Model], Any], message: str
) -> None:
    with pytest.raises(FairHorizonError) as error:
        call(model)
    assert message in str(error.value)


def test_what_is_evaluated_is_a_method_fitted_on_a_split(model: fh.Model) -> None:
    parts = fh.split(fh.load("synthetic:users=20,items=30,interactions_per_user=8"), ties="keep")
    fitted = fh.Ranked(fh.Popularity()).fit(parts)
    for call, message in (
        (lambda: fh.evaluate(model, parts), "a Model is not evaluated, but a method that was fi"),
        (lambda: fh.evaluate(None, parts), "a NoneType is not evaluated, but a method that was fi"),
        (lambda: fh.evaluate(fitted, "ml-100k"), "the split is of the type str (make it: fh.spl"),
        (
            lambda: fh.evaluate(fh.Ranked(fh.Ease()), parts),
            "the model is not fitted (call its fit(split))",
        ),
        (lambda: fh.evaluate(fitted, parts, ks="20"), "ks is of the type str (give a list of le"),
        (lambda: fh.evaluate(fitted, parts, ks=[2.5]), "k = 2.5 is no whole number (give length"),
    ):
        with pytest.raises(FairHorizonError) as error:
            call()
        assert message in str(error.value)


def test_one_limit_may_be_a_text_alone() -> None:
    source = "synthetic:users=20,items=30,interactions_per_user=8"
    fitted = fh.fit(source, "popularity+lists", limits="popular<=0.5", ties="keep")
    assert fitted.limits == (str(Limit.popular(0.5)),)
