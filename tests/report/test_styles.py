from fairhorizon.report.charts import BROKEN, GREY, PALETTE, styles_of
from fairhorizon.vocabulary import MethodName


def test_no_two_of_many_series_look_alike():
    names = [f"m{i}+r{j}" for i in range(50) for j in range(5)] + [f"m{i}" for i in range(50)]
    styles = styles_of(names)
    assert len(set(styles.values())) == len(names)
    assert styles["m3+r1"].colour == styles["m3"].colour
    assert styles["m3+r1"].dashes == styles["m4+r1"].dashes
    assert styles["m3"].dashes == ()


def test_presets_are_models_and_levels_are_not():
    styles = styles_of(["fcpo@0.4", "fcpo@0.8", "fcpo:paper@0.4", "mf"])
    assert styles["fcpo@0.4"].colour == styles["fcpo@0.8"].colour == PALETTE[0]
    assert styles["fcpo@0.4"].dashes != styles["fcpo@0.8"].dashes
    assert styles["fcpo:paper@0.4"].colour == PALETTE[1]
    assert styles["mf"].dashes == ()


def test_what_is_no_method_has_no_colour_of_one():
    assert not {GREY, BROKEN} & set(PALETTE)


def test_the_parts_of_a_name():
    assert MethodName.split("fcpo:paper@0.4") == MethodName("fcpo", "paper", None, "0.4")
    assert MethodName.split(" ease+quota ") == MethodName("ease", None, "quota", None)
    assert MethodName.split("ease+") == MethodName("ease", None, "", None)
