"""Which tests a command line selects, and which are skipped because this machine does not have what they need."""

import needs
import pytest

UNIT = "def test_one(): pass\ndef test_two(): pass\n"
UNIT_TESTS = ["a::test_one", "a::test_two"]
REAL = """
import pytest

@pytest.mark.commit
def test_sample(): pass

@pytest.mark.commit("b")
@pytest.mark.parametrize("case", ["a", "b"])
def test_cases(case): pass

def test_rest(): pass
"""
NEEDY = """
import pytest

@pytest.fixture(autouse=True)
def daemon(): raise OSError("a fixture is set up although its program is missing")

pytestmark = pytest.mark.needs("a program")

def test_with_it(): pass

@pytest.mark.needs("root")
def test_with_root_too(): pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\ntestpaths = tests\naddopts = -p tiers -p needs --strict-markers\n")
    for name, text in {"unit/test_a": UNIT, "quality/test_b": REAL, "real/test_c": REAL}.items():
        path = pytester.path / "tests" / f"{name}.py"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return pytester


@pytest.mark.parametrize(
    ("arguments", "tests"),
    [
        ((), [*(f"{name}::test_{test}" for name in "bc" for test in ("sample", "cases[b]")), *UNIT_TESTS]),
        (("--part", "1/3"), ["b::test_sample", "b::test_cases[b]"]),
        (("--part", "3/3"), UNIT_TESTS),
        (("--full", "--part", "2/3"), ["c::test_sample", "c::test_cases[a]", "c::test_cases[b]", "c::test_rest"]),
        (("tests/real/test_c.py::test_rest",), ["c::test_rest"]),
        (("-k", "rest"), ["c::test_rest", "b::test_rest"]),
    ],
    ids=" ".join,
)
def test_what_a_command_line_selects(project: pytest.Pytester, arguments: tuple[str, ...], tests: list[str]) -> None:
    lines = project.runpytest(*arguments, "--collect-only", "-q").outlines
    selected = [line.split("/test_")[1].replace(".py", "") for line in lines if "::" in line]
    assert sorted(selected) == sorted(tests)


def test_tests_on_real_brokers_come_first(project: pytest.Pytester) -> None:
    lines = project.runpytest("--collect-only", "-q").outlines
    assert [line.split("/")[1] for line in lines if "::" in line] == ["real"] * 2 + ["quality"] * 2 + ["unit"] * 2


@pytest.mark.parametrize("part", ["0/3", "4/3", "2", "1/0", "a/b"])
def test_a_part_that_is_not_one_of_n(project: pytest.Pytester, part: str) -> None:
    result = project.runpytest("--part", part)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--part {part}: give K/N, with K from 1 to N"])


def test_a_missing_program_skips_its_tests_or_fails_them_if_all_is_required(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(needs.NEEDS, "a program", needs.Need(lambda: False, "apt-get install a-package"))
    monkeypatch.setitem(needs.NEEDS, "root", needs.Need(lambda: False, "run the tests as root"))
    monkeypatch.setattr(needs, "is_met", needs.is_met.__wrapped__)
    needy = "tests/real/test_d.py"
    (project.path / needy).write_text(NEEDY)
    result = project.runpytest(needy)
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines([
        "*skipped: this machine does not have what these tests need*",
        f"1 in {needy}: a program (apt-get install a-package)",
        f"1 in {needy}: root (run the tests as root), a program (apt-get install a-package)",
    ])  # fmt: skip
    result = project.runpytest("--require-all", needy)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*needs a program (apt-get install a-package)*"])


def test_an_unknown_need_is_an_error(project: pytest.Pytester) -> None:
    path = project.makepyfile("import pytest\n@pytest.mark.needs('a typo')\ndef test_it(): pass\n")
    result = project.runpytest(path)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*needs('a typo'): *"])
