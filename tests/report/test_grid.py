import csv

from rich.console import Console

from fairhorizon.report.page import Page, Section
from fairhorizon.report.tables import (
    BEST,
    SECOND,
    Cell,
    Grid,
    as_read,
    csv_text,
    latex,
    markdown,
    number_cell,
    placed,
    terminal,
    write_grids,
)

NASTY = "<i>*a_b|c*</i> [red]"


def places(values, direction):
    lines = [[number_cell(value)] for value in values]
    return [cell.place for (cell,) in placed(lines, {0: direction})]


def rendered(table, width=80, **options):
    console = Console(width=width, **options)
    with console.capture() as capture:
        console.print(table)
    return capture.get().splitlines()


def test_best_and_second_of_a_column():
    assert places([3, 1, 2, None], "more") == [BEST, 0, SECOND, 0]
    assert places([3, 1, 2, float("nan")], "less") == [0, BEST, SECOND, 0]


def test_what_reads_alike_is_placed_alike():
    assert places([2.001, 2.004, 1.0], "more") == [BEST, BEST, 0]  # two bests, and no second
    assert places([3, 2, 2], "more") == [BEST, SECOND, SECOND]


def test_one_alone_is_not_the_best():
    assert places([3, None], "more") == [0, 0]


def test_a_column_without_a_direction_has_no_marks():
    assert [
        cell.place for line in placed([[number_cell(1)], [number_cell(2)]], {}) for cell in line
    ] == [
        0,
        0,
    ]


GRID = Grid(
    ("Name", "Value"),
    [
        [Cell("first", paper="theirs"), Cell("5.00", 5.0, "±0.25", "104.00", BEST)],
        [Cell(NASTY), Cell("10.00", 10.0, "±1.00")],
        [Cell("none"), number_cell(None)],
    ],
    1,
    "What it is",
)


def test_a_terminal_without_colour_keeps_the_marks_and_the_decimal_points_in_line():
    lines = [line.rstrip() for line in rendered(terminal(GRID))]
    assert lines[0] == "What it is"
    assert lines[3:] == [
        "first                  5.00 ±0.25*",
        "theirs               104.00",
        "<i>*a_b|c*</i> [red]  10.00 ±1.00",
        "none                      -",
    ]
    assert lines[1] == "Name                        Value"


def test_a_terminal_with_colour_has_the_best_bold():
    lines = rendered(terminal(GRID), force_terminal=True, color_system="standard", no_color=False)
    (best,) = [line for line in lines if "5.00" in line]
    assert "\x1b[1m5.00\x1b[0m" in best


def test_markdown_is_one_row_a_line_and_nothing_in_it_is_markup():
    assert markdown(GRID).splitlines() == [
        "What it is",
        "",
        "| Name | Value |",
        "| --- | ---: |",
        "| first (theirs) | **5.00** ±0.25 (104.00) |",
        r"| \<i\>\*a\_b\|c\*\</i\> \[red\] | 10.00 ±1.00 |",
        "| none | - |",
    ]


def test_html_escapes_marks_and_says_what_to_sort_by():
    text = Page("", "", "", [Section("S", [GRID])]).html()
    assert "<i>" not in text
    assert "<caption>What it is</caption>" in text
    assert "&lt;i&gt;*a_b|c*&lt;/i&gt; [red]" in text
    assert (
        '<td class="number" data-value="5"><strong>5.00</strong> <small>±0.25</small> '
        '<span class="paper">104.00</span></td>'
    ) in text
    assert text.count("data-value=") == 2
    assert text.count('aria-sort="none"') == 2


def test_a_text_that_reads_as_a_number_sorts_as_one():
    texts = ("1,204", "4.17%", "-2.00 points", "G0", "-")
    assert [as_read(text).value for text in texts] == [1204, 4.17, -2, None, None]


def test_latex_is_a_tabular_with_booktabs_and_nothing_in_it_is_a_command():
    assert latex(GRID).splitlines() == [
        "% What it is",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"Name & Value \\",
        r"\midrule",
        r"first (theirs) & \textbf{5.00} {\scriptsize $\pm$0.25} (104.00) \\",
        r"\textless{}i\textgreater{}*a\_b|c*\textless{}/i\textgreater{} [red] & 10.00 "
        r"{\scriptsize $\pm$1.00} \\",
        r"none & - \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    special = Grid(["50 % & more"], [[Cell(r"[a]\b{c}#$^~")]], 0)
    assert latex(special).splitlines()[2:5:2] == [
        r"50 \% \& more \\",
        r"{}[a]\textbackslash{}b\{c\}\#\$\textasciicircum{}\textasciitilde{} \\",
    ]


def test_latex_with_a_label_floats_under_its_caption():
    lines = latex(GRID, label="tab:one").splitlines()
    assert lines[:5] == [
        r"\begin{table}",
        r"\centering",
        r"\caption{What it is}",
        r"\label{tab:one}",
        r"\begin{tabular}{lr}",
    ]
    assert lines[-2:] == [r"\end{tabular}", r"\end{table}"]


def test_csv_has_spreads_and_figures_of_the_paper_in_columns_of_their_own():
    rows = list(csv.reader(csv_text(GRID).splitlines()))
    assert rows == [
        ["Name", "Name (paper)", "Value", "Value ±", "Value (paper)"],
        ["first", "theirs", "5.00", "0.25", "104.00"],
        [NASTY, "", "10.00", "1.00", ""],
        ["none", "", "", "", ""],
    ]


def test_grids_are_written_by_their_names(tmp_path):
    write_grids(tmp_path / "tables", {"one": GRID})
    assert (tmp_path / "tables" / "one.tex").read_text(encoding="utf-8") == latex(GRID)
    assert (tmp_path / "tables" / "one.csv").read_text(encoding="utf-8") == csv_text(GRID)
