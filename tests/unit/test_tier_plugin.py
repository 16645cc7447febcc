"""The plugin of test tiers in a project of its own: what runs, what is listed, what is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from repository import commit_all, git
from tiers.measurements import Measurements, read, write
from tiers.plugin import RECORD

if TYPE_CHECKING:
    from collections.abc import Callable

CONFTEST = """
import time
import pytest
from tiers import features

pytest_plugins = ["tiers.plugin"]

@pytest.fixture(scope="session", params=["one", "two"])
def cluster(request):
    features.note("target", request.param)
    time.sleep(0.05)
    return request.param
"""
TESTS = """
from tiers import features

def test_booted(cluster):
    features.note("command", "run")

def test_looked_at(cluster):
    pass

def test_slow():
    import harness.slow

def test_quick():
    pass
"""
FILE = "tests/test_all.py"
SLOW = f"{FILE}::test_slow"
MEASURED = Measurements(
    tests={
        **{f"{FILE}::{test}[{target}]": 0.1 for test in ("test_booted", "test_looked_at") for target in ("one", "two")},
        f"{FILE}::test_quick": 0.1,
        SLOW: 9.0,
    },
    shared={"tests::cluster[cluster=one]": 7.0, "tests::cluster[cluster=two]": 8.0},
    features={"tests::cluster[cluster=one]": frozenset({"target=one"})},
)


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a project with a package, tests and one commit."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    pytester.makefile(".toml", pyproject='[tool.pytest.ini_options]\ntestpaths = ["tests"]\n')
    (pytester.path / ".gitignore").write_text("__pycache__/\nrunpytest-*\nstdout\nstderr\n")
    contents = {"tests/conftest.py": CONFTEST, FILE: TESTS, "harness/__init__.py": "", "harness/slow.py": ""}
    for name, text in contents.items():
        (pytester.path / name).parent.mkdir(exist_ok=True)
        (pytester.path / name).write_text(text)
    write(pytester.path / RECORD, MEASURED)
    git(pytester.path, "init", "--quiet")
    commit_all(pytester.path)
    return pytester.path


@pytest.fixture
def run(project: Path, pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """Run its tests; the budget is enough for the quick test and the sample alone."""

    def run(*arguments: str, budget_s: float = 7.25) -> pytest.RunResult:
        options = ("-p", "no:cacheprovider", "-v", "--budget-s", str(budget_s))
        return pytester.runpytest_subprocess(*options, *arguments)

    assert project.exists()
    return run


def test_a_commit_runs_what_is_quick_and_a_sample_and_lists_the_others(run: Callable[..., pytest.RunResult]) -> None:
    ran = run()
    ran.assert_outcomes(passed=2, deselected=4)
    ran.stdout.fnmatch_lines([
        "*test_booted?one? PASSED*",
        "*test_quick PASSED*",
        f"selected: 2 tests (1 quick, 1 sample), 7 s by {RECORD}; unknown what changed, taken for nothing: no run*",
        "left out: 4 tests, 17 s; --tier full runs them",
        f"  {FILE}: 4 tests, 17 s: test_looked_at ×2, test_booted, test_slow",  # noqa: RUF001
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [(("--tier", "full"), 6), ((FILE,), 6), (("-k", "slow"), 1), (("--tier", "commit", FILE), 2)],
    ids=["full", "named", "by keyword", "named, and a tier too"],
)
def test_other_tests_run_when_they_are_asked_for(
    run: Callable[..., pytest.RunResult], arguments: tuple[str, ...], passed: int
) -> None:
    run(*arguments).assert_outcomes(passed=passed, deselected=6 - passed)


def test_what_depends_on_a_change_runs_up_to_the_budget(run: Callable[..., pytest.RunResult], project: Path) -> None:
    write(project / RECORD, Measurements(**{**vars(MEASURED), "passed": git(project, "rev-parse", "HEAD").strip()}))
    commit_all(project)
    unchanged = run()
    unchanged.assert_outcomes(passed=2, deselected=4)
    unchanged.stdout.fnmatch_lines(["selected: 2 tests*; files changed since *: 0"])
    (project / "harness/slow.py").write_text("import sys\n")
    changed = run(budget_s=16.5)
    changed.assert_outcomes(passed=4, deselected=2)
    changed.stdout.fnmatch_lines(["selected: 4 tests (1 quick, 1 sample, 2 changed), 16 s*"])


def test_a_full_run_that_passes_records_seconds_features_and_the_commit(
    run: Callable[..., pytest.RunResult], project: Path
) -> None:
    write(project / RECORD, Measurements({"tests/test_gone.py::test_gone": 1.0}))
    ran = run("--tier", "full", "--record-durations")
    ran.assert_outcomes(passed=6)
    measured = read(project / RECORD)
    assert measured.passed == git(project, "rev-parse", "HEAD").strip()
    ran.stdout.fnmatch_lines([f"recorded 6 tests in {RECORD}; every test passed at commit {measured.passed}"])
    assert measured.tests.keys() == MEASURED.tests.keys()
    assert all(measured.shared[key] >= 0.05 for key in MEASURED.shared)
    assert measured.tests[f"{FILE}::test_booted[one]"] < 0.05, "without the fixture"
    assert measured.features == {
        "tests::cluster[cluster=one]": {"target=one"},
        "tests::cluster[cluster=two]": {"target=two"},
        f"{FILE}::test_booted[one]": {"command=run"},
        f"{FILE}::test_booted[two]": {"command=run"},
    }


def test_a_test_that_fails_is_not_recorded_and_no_commit_is(
    run: Callable[..., pytest.RunResult], project: Path
) -> None:
    (project / FILE).write_text(TESTS.replace("import harness.slow", "assert False"))
    commit_all(project)
    ran = run("--tier", "full", "--record-durations")
    ran.assert_outcomes(passed=5, failed=1)
    measured = read(project / RECORD)
    ran.stdout.fnmatch_lines([f"recorded 5 tests in {RECORD}; 1 tests have not passed at commit {measured.commit}"])
    assert measured.passed is None
    assert measured.tests[SLOW] == MEASURED.tests[SLOW], "what was recorded before stays"


def state_of(project: Path) -> tuple[set[str], str | None]:
    """Return the tests that have not passed, and the commit at which all have."""
    record = read(project / RECORD)
    return set(record.failed), record.passed


def test_what_failed_and_passes_again_at_the_same_commit_completes_the_run(
    run: Callable[..., pytest.RunResult], project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "is-well"
    (project / FILE).write_text(
        TESTS.replace("import harness.slow", f"assert __import__('os').path.exists({str(outside)!r})")
    )
    commit_all(project)
    run("--tier", "full", "--record-durations").assert_outcomes(passed=5, failed=1)
    assert read(project / RECORD).failed == {SLOW}
    run("--record-durations", SLOW).assert_outcomes(failed=1)
    assert state_of(project) == ({SLOW}, None)
    outside.touch()
    run("--record-durations", f"{FILE}::test_booted").assert_outcomes(passed=2)
    assert state_of(project) == ({SLOW}, None)
    run("--record-durations", SLOW).assert_outcomes(passed=1)
    head = git(project, "rev-parse", "HEAD").strip()
    assert state_of(project) == (set(), head)


def test_a_run_that_was_cut_off_is_completed_by_the_tests_that_it_did_not_reach(
    run: Callable[..., pytest.RunResult], project: Path
) -> None:
    interrupted = "import os\n" + TESTS.replace(
        "import harness.slow", "if os.environ.get('CUT'):\n        raise KeyboardInterrupt"
    )
    (project / FILE).write_text(interrupted)
    commit_all(project)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CUT", "1")
        ran = run("--tier", "full", "--record-durations")
    assert ran.ret == pytest.ExitCode.INTERRUPTED
    assert state_of(project) == ({SLOW, f"{FILE}::test_quick"}, None)
    run("--record-durations", SLOW, f"{FILE}::test_quick").assert_outcomes(passed=2)
    assert state_of(project) == (set(), git(project, "rev-parse", "HEAD").strip())


def test_what_failed_and_passes_at_another_commit_completes_nothing(
    run: Callable[..., pytest.RunResult], project: Path
) -> None:
    (project / FILE).write_text(TESTS.replace("import harness.slow", "assert False"))
    commit_all(project)
    run("--tier", "full", "--record-durations")
    (project / FILE).write_text(TESTS)
    commit_all(project)
    run("--record-durations", SLOW).assert_outcomes(passed=1)
    assert state_of(project) == ({SLOW}, None)


def test_a_repaired_test_completes_the_run_at_the_commit_of_its_repair(
    run: Callable[..., pytest.RunResult], project: Path
) -> None:
    (project / FILE).write_text(TESTS.replace("import harness.slow", "assert False"))
    (project / "tests/test_other.py").write_text("def test_other():\n    pass\n")
    commit_all(project)
    run("--tier", "full", "--record-durations").assert_outcomes(passed=6, failed=1)
    (project / FILE).write_text(TESTS)
    commit_all(project)
    run("--record-durations", SLOW, "tests/test_other.py").assert_outcomes(passed=2)
    assert state_of(project) == ({SLOW}, None), "others of that file may be hurt by its repair"
    run("--record-durations", "-k", "slow", FILE).assert_outcomes(passed=1, deselected=5)
    assert state_of(project) == ({SLOW}, None)
    run("--record-durations", FILE).assert_outcomes(passed=6)
    assert state_of(project) == (set(), git(project, "rev-parse", "HEAD").strip())


def test_a_repair_is_tried_by_every_test_that_depends_on_it(
    run: Callable[..., pytest.RunResult], project: Path
) -> None:
    (project / "harness/slow.py").write_text("assert False\n")
    (project / "tests/test_other.py").write_text("def test_other():\n    import harness.slow\n")
    commit_all(project)
    run("--tier", "full", "--record-durations").assert_outcomes(passed=5, failed=2)
    (project / "harness/slow.py").write_text("")
    commit_all(project)
    run("--record-durations", FILE).assert_outcomes(passed=6)
    assert state_of(project) == ({SLOW, "tests/test_other.py::test_other"}, None)
    run("--record-durations", FILE, "tests/test_other.py").assert_outcomes(passed=7)
    assert state_of(project) == (set(), git(project, "rev-parse", "HEAD").strip())


def test_a_repair_of_what_a_fixture_uses_is_tried_by_every_test_below(
    run: Callable[..., pytest.RunResult], project: Path
) -> None:
    (project / "tests/helper.py").write_text("assert False\n")
    (project / "tests/below").mkdir()
    (project / "tests/below/conftest.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef helped():\n    import helper\n"
    )
    (project / "tests/below/test_below.py").write_text("def test_helped(helped):\n    pass\n")
    (project / "tests/below/test_beside.py").write_text("def test_beside():\n    pass\n")
    commit_all(project)
    run("--tier", "full", "--record-durations").assert_outcomes(passed=7, errors=1)
    (project / "tests/helper.py").write_text("")
    commit_all(project)
    run("--record-durations", "tests/below/test_below.py").assert_outcomes(passed=1)
    assert state_of(project) == ({"tests/below/test_below.py::test_helped"}, None)
    run("--record-durations", "tests/below/test_below.py", "tests/below/test_beside.py").assert_outcomes(passed=2)
    assert state_of(project) == (set(), git(project, "rev-parse", "HEAD").strip())


@pytest.mark.parametrize("arguments", [("-k", "not slow"), ("--ignore", "tests/test_other.py"), ("--deselect", SLOW)])
def test_a_restricted_run_that_passes_is_none_of_every_test(
    run: Callable[..., pytest.RunResult], project: Path, arguments: tuple[str, ...]
) -> None:
    run("--tier", "full", "--record-durations", *arguments)
    assert read(project / RECORD).passed is None
    assert SLOW in read(project / RECORD).tests


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--changed-since", "nowhere"), "*ERROR: --changed-since nowhere: *Not a valid object name nowhere*"),
        (("--budget-s", "nan"), "*ERROR: --budget-s nan: not a number of seconds"),
        (("--budget-s", "-1"), "*ERROR: --budget-s -1.0: not a number of seconds"),
    ],
)
def test_bad_input_is_one_sentence(
    run: Callable[..., pytest.RunResult], arguments: tuple[str, ...], message: str
) -> None:
    ran = run(*arguments)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines([message])
    assert len(ran.errlines) <= 2


def test_a_wrong_record_is_one_sentence(run: Callable[..., pytest.RunResult], project: Path) -> None:
    (project / RECORD).write_text("[]")
    ran = run()
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines(["*ERROR: */tests/durations.json: not a record of test durations: *"])


def test_what_passes_with_uncommitted_changes_is_no_commit(run: Callable[..., pytest.RunResult], project: Path) -> None:
    (project / "harness/slow.py").write_text("import sys\n")
    ran = run("--tier", "full", "--record-durations")
    ran.stdout.fnmatch_lines(["recorded 6 tests *; every test passed at commit (none: uncommitted changes)"])
    assert read(project / RECORD).passed is None


def test_a_fixture_that_fails_is_not_recorded(run: Callable[..., pytest.RunResult], project: Path) -> None:
    (project / "tests/conftest.py").write_text(
        CONFTEST.replace("return request.param", "assert request.param == 'two'")
    )
    run("--tier", "full", "--record-durations").assert_outcomes(passed=4, errors=2)
    shared = read(project / RECORD).shared
    assert shared["tests::cluster[cluster=one]"] == MEASURED.shared["tests::cluster[cluster=one]"]
    assert shared["tests::cluster[cluster=two]"] < MEASURED.shared["tests::cluster[cluster=two]"]


def test_a_run_of_some_tests_records_those_alone(run: Callable[..., pytest.RunResult], project: Path) -> None:
    run("--record-durations", SLOW).assert_outcomes(passed=1)
    measured = read(project / RECORD)
    assert measured.tests[SLOW] < 9
    assert measured.shared == MEASURED.shared
    assert measured.passed is None


def test_a_fixture_has_one_key_for_each_value_whatever_else_its_tests_take(
    run: Callable[..., pytest.RunResult], project: Path
) -> None:
    (project / FILE).write_text(
        "import pytest\n\n"
        "@pytest.mark.parametrize('how', ['quickly', 'slowly'])\n"
        "@pytest.mark.parametrize('client', ['old', 'new'])\n"
        "def test_used(client, cluster, how):\n    pass\n"
    )
    run("--tier", "full", "--record-durations").assert_outcomes(passed=8)
    assert read(project / RECORD).shared.keys() == MEASURED.shared.keys()
