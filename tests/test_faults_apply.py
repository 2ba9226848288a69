"""The list of planted faults fits today's source and tests; `make faults` plants them."""

import ast

import pytest

from faults.run import PACKAGE, ROOT, Fault, ListError, read_faults

FAULTS = read_faults()
EXAMPLE = Fault("example", "files.py", "a < b", "a <= b", ("test_files.py",))


def test_the_list_is_long_and_reaches_every_room():
    rooms = {fault.file.split("/")[0] for fault in FAULTS if "/" in fault.file}
    folders = {path.name for path in (ROOT / "src" / PACKAGE).iterdir() if path.is_dir()}
    assert len(FAULTS) >= 36
    assert folders - rooms <= {"__pycache__"}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_changes_the_code_of_one_place(fault: Fault):
    source = (ROOT / "src" / PACKAGE / fault.file).read_text(encoding="utf-8")
    # trees leave out comments and layout: what differs is code
    assert ast.dump(ast.parse(fault.changed(source))) != ast.dump(ast.parse(source))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_tests_that_a_fault_names_are_there(fault: Fault):
    assert fault.tests
    for test in fault.tests:
        file, _, name = test.partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        assert not name or name in {getattr(node, "name", "") for node in tree.body}


@pytest.mark.parametrize(("source", "count"), [("x = a > b\n", 0), ("a < b\na < b\n", 2)])
def test_what_is_not_there_once_is_refused_by_name(source: str, count: int):
    with pytest.raises(ListError, match=f"example: found {count} times in files.py: a < b"):
        EXAMPLE.changed(source)


def test_two_faults_of_one_name_are_refused(tmp_path):
    entry = '[[fault]]\nname = "x"\nfile = "f"\nfind = "a"\nbecomes = "b"\ntests = ["t"]\n'
    (tmp_path / "list.toml").write_text(2 * entry)
    with pytest.raises(ListError, match="two faults are called x"):
        read_faults(tmp_path)
