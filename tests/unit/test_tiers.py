"""Test tiers: the rule of selection, and what depends on a change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from repository import commit_all, git
from tiers import features
from tiers.changes import FARTHEST, REGISTRY, UnknownChangesError, changed_since, dependencies, head_if_clean
from tiers.measurements import Measurements, read, write
from tiers.selection import CHANGED, MORE, NEW, QUICK, SAMPLE, WANTED, Candidate, select
from tiers.summary import summary

if TYPE_CHECKING:
    from pathlib import Path

    from tiers.changes import Dependencies

BOOT = Candidate("boot", 20.0, features=frozenset({"runtime=local"}))
DEAR = Candidate("dear", 30.0)
RECORD = "tests/durations.json"
JUDGED = frozenset({"judged"})

# The rule


def test_a_test_without_a_duration_runs_whatever_the_budget() -> None:
    chosen = select([replace(DEAR, seconds=None), BOOT], {}, frozenset(), budget_s=0)
    assert chosen.reasons == {"dear": NEW}
    assert chosen.left_out_s == {"boot": 20.0}


def test_quick_tests_run_before_dear_ones() -> None:
    chosen = select([DEAR, Candidate("quick", 0.1)], {}, frozenset(), budget_s=30)
    assert chosen.reasons == {"quick": QUICK}
    assert (chosen.selected_s, chosen.left_out) == (0.1, ("dear",))


def test_many_quick_tests_share_a_dear_fixture() -> None:
    many = [Candidate(f"test-{number}", 0.1, JUDGED) for number in range(100)]
    chosen = select(many, {"judged": 30.0}, frozenset(), budget_s=100)
    assert set(chosen.reasons.values()) == {QUICK}
    assert chosen.selected_s == pytest.approx(40.0)


def test_few_quick_tests_do_not_make_a_dear_fixture_quick() -> None:
    few = [Candidate(f"test-{number}", 0.1, JUDGED) for number in range(10)]
    chosen = select(few, {"judged": 30.0}, frozenset(), budget_s=29)
    assert chosen.reasons == {}
    assert sum(chosen.left_out_s.values()) == pytest.approx(31.0), "the fixture is set up once"


def test_quick_tests_keep_to_the_budget() -> None:
    chosen = select([Candidate("one", 0.2), Candidate("two", 0.3)], {}, frozenset(), budget_s=0.4)
    assert chosen.reasons == {"one": QUICK}


def test_each_required_feature_is_exercised_by_the_cheapest_tests() -> None:
    local, docker, exit_1 = "runtime=local", "runtime=docker", "exit=run 1"
    tests = [
        BOOT,
        Candidate("both", 25.0, features=frozenset({local, exit_1})),
        Candidate("container", 40.0, features=frozenset({docker, exit_1})),
        Candidate("other container", 50.0, features=frozenset({docker, "nemesis=pause"})),
    ]
    chosen = select(tests, {}, frozenset({local, docker, exit_1}), budget_s=0)
    assert chosen.reasons == {"both": SAMPLE, "container": SAMPLE}


def test_a_feature_that_a_quick_test_exercises_needs_no_sample() -> None:
    quick = replace(BOOT, name="quick", seconds=0.1)
    assert select([BOOT, quick], {}, BOOT.features, budget_s=10).reasons == {"quick": QUICK}


def test_wanted_features_are_exercised_as_long_as_the_budget_lasts() -> None:
    one, other, dear = "file=one", "file=other", "file=dear"
    tests = [
        replace(BOOT, name="one", features=frozenset({one})),
        replace(BOOT, name="one again", seconds=25.0, features=frozenset({one})),
        replace(BOOT, name="other", seconds=21.0, features=frozenset({other})),
        replace(DEAR, features=frozenset({dear})),
        replace(DEAR, name="near", distance=1),
    ]
    wanted = frozenset({one, other, dear})
    cheap = select(tests, {}, frozenset(), 45, wanted=wanted)
    assert (cheap.reasons, cheap.missing) == ({"one": WANTED, "other": WANTED}, frozenset({dear}))
    assert f"only --tier full exercises: {dear}" in summary(cheap, record="durations.json", note="")
    assert select(tests, {}, frozenset(), 75, wanted=wanted).reasons == {
        "one": WANTED,
        "other": WANTED,
        "dear": WANTED,
    }, "before what depends on the change"
    assert select(tests, {}, frozenset({dear}), 0, wanted=wanted).reasons == {"dear": SAMPLE}


def test_what_is_nearest_to_the_change_runs_first_up_to_the_budget() -> None:
    far, near = replace(BOOT, name="far", distance=3), replace(DEAR, name="near", distance=1)
    tests = [far, DEAR, near]
    assert select(tests, {}, frozenset(), budget_s=60).reasons == {"near": CHANGED, "far": CHANGED}
    assert select(tests, {}, frozenset(), budget_s=45).reasons == {"near": CHANGED}
    assert select(tests, {}, frozenset(), budget_s=25).reasons == {"far": CHANGED}, "passed over for a cheaper one"


def test_what_is_left_of_the_budget_goes_to_the_most_tests() -> None:
    tests = [DEAR, BOOT, *(Candidate(f"look-{number}", 0.1, JUDGED) for number in range(10))]
    chosen = select(tests, {"judged": 20.0}, frozenset(), budget_s=45)
    assert chosen.reasons == {**{f"look-{number}": MORE for number in range(10)}, "boot": MORE}
    assert chosen.left_out_s == {"dear": 30.0}


# What changed, and what depends on it

FILES = {
    "harness/__init__.py": "",
    "harness/cli/main.py": "from harness import clock\n",
    "harness/clock.py": '"""Time."""\n\ndef now() -> int:\n    return 1\n',
    "harness/words.py": "TEXT = 1\n",
    "nemesis/__init__.py": "",
    "nemesis/one_way.py": "import harness.clock\n",
    "harness/targets/__init__.py": "",
    "harness/targets/jars.py": "",
    "harness/targets/locks/kafka.lock": "",
    "pyproject.toml": "",
    "README.md": "",
    "nightly.toml": "",
    "tests/real/sandbox.py": 'COMMAND = ("-m", "harness.cli.main")\n',
    "tests/real/test_runs.py": "from sandbox import COMMAND\n",
    "tests/unit/fakes/__init__.py": "",
    "tests/unit/fakes/runtime.py": "import harness.clock\n",
    "tests/unit/test_faked.py": "from fakes.runtime import FakeRuntime\n",
    "tests/unit/test_clock.py": "def test_clock():\n    from harness.clock import now\n",
    "tests/unit/test_jars.py": "import harness.targets.jars\n",
    "tests/unit/test_typed.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from harness.clock import now\n"
    ),
    "tests/unit/test_words.py": "import harness.words\n",
    "tests/unit/test_workflow.py": 'NIGHTLY = "nightly.toml"\n',
}
RUNS, CLOCK = "tests/real/test_runs.py", "tests/unit/test_clock.py"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Give a repository with one commit."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet")
    commit_all(tmp_path)
    return tmp_path


def after(root: Path, **contents: str) -> Dependencies:
    """Change files, and return what depends on them; ``__`` stands for a slash, ``_dot_`` for a dot."""
    for name, text in contents.items():
        (root / name.replace("__", "/").replace("_dot_", ".")).write_text(text)
    return dependencies(root, changed_since(root, "HEAD", record=RECORD))


def test_nothing_depends_on_no_change(checkout: Path) -> None:
    assert after(checkout).distances == {}


def test_imports_lead_from_a_module_to_tests_also_inside_functions_and_by_a_command(checkout: Path) -> None:
    found = after(checkout, harness__clock_dot_py="LATER = 2\n").distances
    assert {path: found[path] for path in found if path.startswith("tests/")} == {
        CLOCK: 1,
        "tests/real/sandbox.py": 2,
        RUNS: 3,
        "tests/unit/fakes/runtime.py": 1,
        "tests/unit/test_faked.py": 2,
    }


def test_other_words_are_no_change(checkout: Path) -> None:
    reworded = '"""Of time."""\n\ndef now() -> int:\n    """Say it."""\n    return 1  # always\n'
    assert after(checkout, harness__clock_dot_py=reworded).distances == {}


def test_a_changed_test_and_a_new_one_depend_on_the_change(checkout: Path) -> None:
    found = after(checkout, tests__unit__test_words_dot_py="TEXT = 2\n", tests__unit__test_new_dot_py="NEW = 1\n")
    assert found.distances == {"tests/unit/test_words.py": 0, "tests/unit/test_new.py": 0}


def test_a_module_that_is_gone_has_changed(checkout: Path) -> None:
    (checkout / "harness/words.py").unlink()
    assert after(checkout).distances["tests/unit/test_words.py"] == 1


def test_a_data_file_belongs_to_its_package(checkout: Path) -> None:
    (checkout / "harness/targets/settings.json").write_text("{}")
    assert "tests/unit/test_jars.py" in after(checkout).distances


def test_a_data_file_in_a_folder_without_modules_belongs_to_the_package_above(checkout: Path) -> None:
    (checkout / "harness/targets/locks/kafka.lock").write_text("another jar")
    assert "tests/unit/test_jars.py" in after(checkout).distances


def test_a_data_file_elsewhere_belongs_to_whoever_names_it(checkout: Path) -> None:
    assert set(after(checkout, nightly_dot_toml="[matrix]\n").distances) == {
        "nightly.toml",
        "tests/unit/test_workflow.py",
    }


def test_every_test_depends_on_the_settings_farther_than_on_any_module(checkout: Path) -> None:
    found = after(checkout, pyproject_dot_toml="[x]\n", harness__words_dot_py="TEXT = 3\n").distances
    assert found[CLOCK] == FARTHEST
    assert found["tests/unit/test_words.py"] == 1


def test_a_test_that_names_the_changed_module_is_nearest(checkout: Path) -> None:
    (checkout / "harness/cli/main.py").write_text("import nemesis.one_way\n")
    found = after(checkout, nemesis__one_way_dot_py="import harness.clock, sys\n")
    assert found.distance([RUNS], "test_faults[kafka-3.9-one-way-java]") == 0
    assert found.distance([RUNS], "test_faults[kafka-3.9-pause]") == 2
    assert found.distance(["tests/unit/test_words.py"], "test_one_way") is None, "it does not depend on it"


def test_a_package_that_imports_all_of_its_modules_depends_on_each(checkout: Path) -> None:
    registry = f"import pkgutil\nNAMES = [module.name for module in pkgutil.{REGISTRY}]\n"
    (checkout / "nemesis/__init__.py").write_text(registry)
    (checkout / "tests/unit/test_words.py").write_text("import nemesis\n")
    commit_all(checkout)
    found = after(checkout, nemesis__one_way_dot_py="import harness.clock, sys\n")
    assert found.distances["tests/unit/test_words.py"] == 2


def test_a_file_that_cannot_be_parsed_depends_on_nothing(checkout: Path) -> None:
    (checkout / RUNS).write_text("def (")
    assert after(checkout, harness__clock_dot_py="LATER = 2\n").distances[CLOCK] == 1


def test_an_unknown_commit_is_one_sentence(checkout: Path) -> None:
    with pytest.raises(UnknownChangesError, match="0123456789"):
        changed_since(checkout, "0123456789" * 4, record=RECORD)


def test_a_folder_without_git_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UnknownChangesError, match="not a git repository"):
        changed_since(tmp_path, "HEAD", record=RECORD)


def test_a_commit_is_what_passed_only_if_nothing_but_the_record_differs(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD").strip()
    (checkout / RECORD).write_text("{}")
    assert head_if_clean(checkout, record=RECORD) == head
    assert changed_since(checkout, "HEAD", record=RECORD).files == frozenset()
    (checkout / "harness/words.py").write_text("TEXT = 4\n")
    assert head_if_clean(checkout, record=RECORD) is None


# The record


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    measured = Measurements(
        tests={"tests/unit/test_x.py::test_a[1::2]": 1.5, "tests/unit/test_x.py::test_b": 0.01},
        shared={"tests::spark": 5.0},
        features={"tests/unit/test_x.py::test_b": frozenset({"command=run"})},
        passed="c0ffee",
        commit="decade",
        failed=frozenset({"tests/unit/test_x.py::test_a[1::2]"}),
    )
    write(tmp_path / "record.json", measured)
    assert read(tmp_path / "record.json") == measured


def test_a_missing_record_is_empty_and_a_wrong_one_an_error(tmp_path: Path) -> None:
    assert read(tmp_path / "record.json") == Measurements()
    (tmp_path / "record.json").write_text("{}")
    with pytest.raises(ValueError, match=r"record\.json: not a record of test durations"):
        read(tmp_path / "record.json")


def test_newer_measurements_replace_those_of_the_same_test() -> None:
    old = Measurements({"a": 1, "b": 2}, {}, {"a": frozenset({"exit=run 0"}), "b": frozenset({"exit=run 1"})}, "old")
    new = old.updated(Measurements({"a": 3}, {"f": 4}))
    assert new == Measurements({"a": 3, "b": 2}, {"f": 4}, {"b": frozenset({"exit=run 1"})}, "old")


def test_features_are_taken_once() -> None:
    features.take()
    features.note("command", "audit disk")
    assert features.take() == {"command=audit disk"}
    assert features.take() == frozenset()


@pytest.mark.parametrize(
    ("arguments", "code", "noted"),
    [
        (
            ("run", "--target", "kafka-3.9", "--nemesis", "pause", "--runtime", "local", "--format", "json"),
            1,
            {"exit=run 1", "target=kafka-3.9", "nemesis=pause", "runtime=local", "client=librdkafka"},
        ),
        (("run", "--target", "kafka-3.9", "--client", "java", "--runtime", "docker"), 254, {"exit=run 254"}),
        (("run", "--resume", "results/x"), 0, {"exit=run 0"}),
        (("audit", "live", "--topic", "t"), 2, {"exit=audit live 2"}),
        (("check", "results/x"), 0, {"exit=check 0"}),
    ],
)
def test_a_command_line_tells_what_it_exercises(arguments: tuple[str, ...], code: int, noted: set[str]) -> None:
    features.take()
    features.note_command(arguments, code)
    commands = {"command=audit live" if arguments[0] == "audit" else f"command={arguments[0]}"}
    assert features.take() == noted | commands
