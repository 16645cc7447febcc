"""Results as JUnit XML, which CI systems show. Texts have their control characters visible."""

from collections.abc import Iterable
from pathlib import Path

from junitparser import Error, Failure
from junitparser.xunit2 import JUnitXml, TestCase, TestSuite

from harness.escape import visible
from harness.judge.finding import by_place
from harness.judge.verdict import ANOMALY, CLEAN, Verdict


def add_problem(
    case: TestCase, message: str, type_: str, lines: Iterable[str] = (), *, is_failure: bool = True
) -> None:
    """Mark a test case as failed, or as ended by an error."""
    problem = (Failure if is_failure else Error)(visible(message), type_)
    problem.text = "\n".join(map(visible, lines))
    case.result = [problem]


def write_cases(path: Path, suite_name: str, cases: Iterable[TestCase]) -> None:
    """Write test cases as one suite. Raises OSError."""
    suite, document = TestSuite(suite_name), JUnitXml(suite_name)
    for case in cases:
        suite.add_testcase(case)
    document.add_testsuite(suite)
    document.update_statistics()
    document.write(str(path), pretty=True)


def write_audit(path: Path, verdict: Verdict) -> None:
    """Write a test case for each partition: a diverged one is a failure, an undecided one an error. Raises OSError."""
    findings, cases = by_place(verdict.findings), []
    for scenario in verdict.scenarios:
        case = TestCase(scenario.scenario, scenario.topic)
        if scenario.verdict != CLEAN:
            lines = map(str, findings.get((scenario.topic, scenario.partition or 0), ()))
            add_problem(case, scenario.reason, scenario.verdict, lines, is_failure=scenario.verdict == ANOMALY)
        cases.append(case)
    write_cases(path, "harness audit", cases)
