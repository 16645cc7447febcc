"""The user's own Kafka as a target: the facts read from each form, and one clear sentence for everything else."""

import io
import json
import os
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import targets
from harness.cli.run import command_line
from harness.cluster.boot import Equipment
from harness.errors import UsageError
from harness.json_codec import from_json, to_json
from harness.nightly.matrix import Matrix, expected, read_expectations, read_matrix
from harness.nightly.night import command_of
from harness.play.begin import begin_manifest
from harness.play.options import RunOptions
from harness.play.resume import options_of
from harness.play.run_plan import PreparedRun, plan_run, repeatable
from harness.run_folder.store import RunFolder
from harness.runtimes import LOCAL, choose
from harness.runtimes.base import PreparedRuntime, RuntimeRequest
from harness.targets import Target, builds, find_target, images, jars, line_of, patched
from harness.targets.jars import JarSet, jars_for
from harness.targets.lock import BINDING, file_sha256, jar_name
from harness.targets.settings import note_on, raise_if_unfit

VERSION = "4.5.0-SNAPSHOT"
COMMIT = "0123456789abcdef"
CLEANER = "org/apache/kafka/storage/internals/log/Cleaner.class"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep copies in a folder of the test; the binding of slf4j comes from nowhere."""
    monkeypatch.setenv("COMPACTION_HARNESS_CACHE", str(tmp_path / "cache"))

    def materialise(digests: dict[str, str], directory: Path, *_: Any) -> JarSet:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / jar_name(BINDING)).write_bytes(b"simple")
        return JarSet(directory, digests)

    monkeypatch.setattr(builds, "materialise", materialise)
    return tmp_path / "cache"


def packed(contents: Mapping[str, str]) -> bytes:
    """Return a jar; its members have a fixed time, so that the same contents are the same bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as jar:
        for name, content in contents.items():
            jar.writestr(zipfile.ZipInfo(name), content)
    return file.getvalue()


def distribution(version: str = VERSION, more: Mapping[str, bytes | None] | None = None) -> dict[str, bytes]:
    """Return the jars of a distribution by name, with others in place of some; None takes one out."""
    properties = f"commitId={COMMIT}\nversion={version}\n"
    others = (f"kafka_2.13-{version}-test.jar", f"kafka-clients-{version}-javadoc.jar")
    every: dict[str, bytes | None] = {
        f"kafka_2.13-{version}.jar": packed({"kafka/Kafka.class": "broker"}),
        f"kafka-clients-{version}.jar": packed({"kafka/kafka-version.properties": properties}),
        f"kafka-storage-{version}.jar": packed({CLEANER: "cleaner"}),
        **dict.fromkeys(("slf4j-api-1.7.36.jar", "log4j-slf4j-impl-2.25.4.jar", *others), packed({})),
        **(more or {}),
    }
    return {name: content for name, content in every.items() if content is not None}


def unpacked(folder: Path, contents: Mapping[str, bytes]) -> Path:
    (folder / "libs").mkdir(parents=True)
    for name, content in contents.items():
        (folder / "libs" / name).write_bytes(content)
    return folder


def archive(path: Path, contents: Mapping[str, bytes], folder: str = "libs") -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in {**contents, "NOTICE": b"text"}.items():
            member = tarfile.TarInfo(f"kafka_2.13/{folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def checkout(folder: Path) -> Path:
    """Write a checkout that was built: storage was built by itself after core had copied its jar."""
    every = distribution()
    libraries, binding = "build/dependant-libs-2.13.18", "log4j-slf4j-impl-2.25.4.jar"
    places = {f"{part}/build/libs": [f"kafka-{part}-{VERSION}.jar"] for part in ("clients", "storage")}
    places |= {"core/build/libs": [f"kafka_2.13-{VERSION}.jar"], f"tools/{libraries}": [binding]}
    for place, names in {**places, f"core/{libraries}": ["slf4j-api-1.7.36.jar", binding]}.items():
        (folder / place).mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / place / name).write_bytes(every[name])
    (folder / f"core/{libraries}/kafka-storage-{VERSION}.jar").write_bytes(b"older")
    (folder / "gradlew").touch()
    return folder


def of_form(form: str, folder: Path) -> Path:
    if form == "archive":
        return archive(folder / f"kafka_2.13-{VERSION}.tgz", distribution())
    return checkout(folder / "kafka") if form == "checkout" else unpacked(folder / "dist", distribution())


def target_of(folder: Path, contents: Mapping[str, bytes]) -> Target:
    return find_target(str(unpacked(folder / "dist", contents)))


@pytest.mark.parametrize("form", ["archive", "distribution", "checkout"])
def test_builds_of_each_form_are_read(tmp_path: Path, cache: Path, form: str) -> None:
    path = of_form(form, tmp_path)
    target = find_target(str(path))
    assert (target.version, target.system, line_of(target.name)) == (VERSION, "kafka", "kafka-4.4")
    assert target.note == f"Kafka {VERSION} of {path}; it has the rules and settings of kafka-4.4"
    assert target.build is not None
    assert target.build.commit == COMMIT
    jar_set = jars_for(target, verify=True)
    names = {f"{name}-{VERSION}.jar" for name in ("kafka_2.13", "kafka-clients", "kafka-storage")}
    # A binding that logs to the output replaces the build's own binding; jars that brokers do not run are omitted.
    assert {jar.name for jar in jar_set.paths} == {*names, "slf4j-api-1.7.36.jar", jar_name(BINDING)}
    assert all(jar.is_file() and jar.is_relative_to(cache) for jar in jar_set.paths)
    storage = f"kafka-storage-{VERSION}.jar"
    assert (jar_set.directory / storage).read_bytes() == distribution()[storage]
    assert jar_set.digests[f"kafka_2.13-{VERSION}"] == file_sha256(jar_set.directory / f"kafka_2.13-{VERSION}.jar")
    assert (jar_set.pinned, jar_set.client_classpath) == (False, jar_set.classpath)


def test_the_same_jars_have_one_name_in_every_form(tmp_path: Path) -> None:
    (name,) = {find_target(str(of_form(form, tmp_path))).name for form in ("archive", "distribution", "checkout")}
    assert name.startswith(f"kafka-{VERSION}-build-")


def test_a_build_is_found_by_its_name(tmp_path: Path) -> None:
    path = of_form("distribution", tmp_path)
    before = find_target(str(path))
    (path / "libs" / f"kafka-storage-{VERSION}.jar").write_bytes(packed({CLEANER: "changed"}))
    builds.read_build.cache_clear()  # as in another process
    after = find_target(str(path))
    assert before.name != after.name
    assert [find_target(target.name) for target in (before, after)] == [before, after]
    assert jars_for(before).digests != jars_for(after).digests


@pytest.mark.parametrize(("version", "line"), [
    ("3.9.2", "kafka-3.9"), ("4.0.1", "kafka-4.0"), ("4.9.0", "kafka-4.4"), ("5.0.0-SNAPSHOT", "kafka-4.4"),
])  # fmt: skip
def test_a_build_has_the_rules_of_the_nearest_line(tmp_path: Path, version: str, line: str) -> None:
    target = target_of(tmp_path, distribution(version))
    assert (line_of(target.name), target.group_protocols) == (line, find_target(line).group_protocols)
    assert line in target.note


def test_a_version_without_properties_is_read_from_the_name(tmp_path: Path) -> None:
    target = target_of(tmp_path, distribution(more={f"kafka-clients-{VERSION}.jar": packed({})}))
    assert target.build is not None
    assert (target.version, target.build.commit) == (VERSION, "")


def test_another_slf4j_keeps_its_own_binding(tmp_path: Path) -> None:
    newer = dict.fromkeys(("slf4j-api-2.0.17.jar", "log4j-slf4j2-impl-2.25.jar"), packed({}))
    target = target_of(tmp_path, distribution(more={"slf4j-api-1.7.36.jar": None, **newer}))
    bindings = {"log4j-slf4j2-impl-2.25.jar", jar_name(BINDING)}
    assert bindings & {jar.name for jar in jars_for(target).paths} == {"log4j-slf4j2-impl-2.25.jar"}


@pytest.mark.parametrize(("contents", "why"), [
    (distribution(more={f"kafka_2.13-{VERSION}.jar": None}), r"has no kafka_2\.\*\.jar in libs"),
    (distribution(more={f"kafka-clients-{VERSION}.jar": None}), r"has no kafka-clients-\*\.jar in libs"),
    (distribution("3.8.1"), r"Kafka 3\.8\.1, older than the oldest that can be tested, kafka-3\.9"),
    (distribution("7.9.0-ccs"), r"version 7\.9\.0-ccs, an unknown Kafka: the newest is kafka-4\.4"),
    (distribution("trunk"), r"an unknown version of Kafka: 'trunk'"),
    (distribution(more={"kafka_2.13-4.4.0.jar": b""}), "has more than one version: kafka_2.13-4.4.0.jar and kafka_2"),
    (distribution(more={f"kafka-clients-{VERSION}.jar": b"no zip"}), "is damaged, or not an archive"),
])  # fmt: skip
def test_incomplete_builds_are_rejected(tmp_path: Path, contents: dict[str, bytes], why: str) -> None:
    for path in (unpacked(tmp_path / "dist", contents), archive(tmp_path / "kafka.tgz", contents)):
        with pytest.raises(UsageError, match=why) as caught:
            find_target(str(path))
        assert str(path) in str(caught.value) or "the build is" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_paths_without_a_build_are_rejected(tmp_path: Path) -> None:
    complete = archive(tmp_path / "whole.tgz", distribution()).read_bytes()
    for name, content in {"text.tgz": b"text", "cut.tgz": complete[: len(complete) // 2], "empty.tgz": b""}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=rf"{name} is damaged, or not an archive"):
            find_target(str(tmp_path / name))
    with pytest.raises(UsageError, match="does not exist: give the archive"):
        find_target(str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match=r"has no kafka_2"):
        find_target(str(archive(tmp_path / "other.tgz", distribution(), folder="site-docs")))
    (tmp_path / "gradlew").touch()
    with pytest.raises(UsageError, match=r"the checkout .* has no jars of brokers: build it with \./gradlew jar"):
        find_target(str(tmp_path))


def test_a_missing_or_damaged_copy_is_reported(tmp_path: Path) -> None:
    target = find_target(str(of_form("distribution", tmp_path)))
    jar = jars_for(target).directory / f"kafka-storage-{VERSION}.jar"
    jar.write_bytes(b"other")
    with pytest.raises(UsageError, match=rf"is damaged: kafka-storage-{VERSION} has the wrong SHA-256"):
        jars_for(target, verify=True)
    jar.unlink()
    with pytest.raises(UsageError, match=rf"has no kafka-storage-{VERSION}\.jar: give the path"):
        find_target(target.name)
    builds.read_build.cache_clear()
    assert find_target(str(tmp_path / "dist")).name == target.name
    assert jar.is_file()
    with pytest.raises(UsageError, match=r"no copy of the build 'kafka-4\.4\.0-build-01234567'"):
        find_target("kafka-4.4.0-build-01234567")


def test_concurrent_copies_of_a_build_leave_one_copy(tmp_path: Path, cache: Path) -> None:
    path = of_form("distribution", tmp_path)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(builds.read_build.__wrapped__, [path, path])
    assert first == second == builds.find_build(first.name)
    assert [folder.name for folder in (cache / "builds").iterdir()] == [first.name]


def test_the_cache_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("COMPACTION_HARNESS_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"the jar cache .* cannot be written"):
        find_target(str(of_form("distribution", tmp_path)))


@pytest.fixture
def released(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def jars_of(digests: dict[str, str], *_: Any, **__: Any) -> JarSet:
        folder = cache / "jars" / "released"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "storage.jar").write_bytes(packed({CLEANER: "cleaner"}))
        assert digests
        return JarSet(folder, {"storage": "ab"})

    monkeypatch.setattr(jars, "materialise", jars_of)


def classes(folder: Path, name: str = CLEANER) -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("changed")
    return folder


@pytest.mark.usefixtures("released")
def test_a_patch_is_in_front_of_brokers_only(tmp_path: Path) -> None:
    folder = classes(tmp_path / "classes")
    target = find_target(patched("kafka-4.3", folder))
    jar_set = jars_for(target)
    assert (target.version, line_of(target.name)) == ("4.3.1", "kafka-4.3")
    assert target.note == f"Kafka 4.3.1 with {folder} in front; it has the rules and settings of kafka-4.3"
    assert [jar.name for jar in jar_set.paths] == ["patch.jar", "storage.jar"]
    assert jar_set.classpath.split(os.pathsep) == [str(jar) for jar in jar_set.paths]
    assert jar_set.client_classpath == str(jar_set.paths[1])
    with zipfile.ZipFile(jar_set.paths[0]) as jar:
        assert {name: jar.read(name) for name in jar.namelist()} == {CLEANER: b"changed"}


@pytest.mark.usefixtures("released")
def test_a_patch_may_be_a_jar_but_has_to_change_a_class(tmp_path: Path) -> None:
    jar = tmp_path / "patch.jar"
    jar.write_bytes(packed({CLEANER: "changed"}))
    target = find_target(patched("kafka-4.2.1", jar))
    assert (target.version, jars_for(target).paths[0].read_bytes()) == ("4.2.1", jar.read_bytes())
    other = classes(tmp_path / "classes", "org/other/Other.class")
    with pytest.raises(UsageError, match=r"replaces no class of Kafka 4\.3\.1, and would change nothing"):
        jars_for(find_target(patched("kafka-4.3", other)))


@pytest.mark.parametrize(("make", "why"), [
    (lambda folder: classes(folder, "Cleaner.java"), "has no classes of Kafka: give a jar, or the folder"),
    (lambda folder: classes(folder, CLEANER.removeprefix("org/")), "or the folder of org/ or kafka/"),
    (lambda folder: folder / "nothing", "does not exist: give a folder of classes or a jar"),
    (lambda _: Path(__file__), "is damaged, or not an archive"),
])  # fmt: skip
def test_paths_without_a_patch_are_rejected(tmp_path: Path, make: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        find_target(patched("kafka-4.3", make(tmp_path)))


def test_a_patch_goes_in_front_of_a_known_version_of_kafka(tmp_path: Path) -> None:
    folder = classes(tmp_path / "classes")
    in_front = "a patch goes in front of a version of Kafka"
    names = {"redpanda-25.3": in_front, "sim-kafka": in_front, "./kafka.tgz": "--patch .* needs a known version"}
    for name, why in {**names, "kafka-9.9": r"unknown target 'kafka-9\.9'"}.items():
        with pytest.raises(UsageError, match=why):
            find_target(patched(name, folder))


@pytest.mark.parametrize("form", ["build", "patch"])
def test_a_name_stands_for_the_build_everywhere(tmp_path: Path, form: str) -> None:
    spec = str(of_form("archive", tmp_path)) if form == "build" else patched("kafka-4.3", classes(tmp_path / "classes"))
    target = find_target(spec)
    assert targets.exact_name(target) == target.name
    assert targets.at_version(target.name, target.version) == find_target(target.name) == target
    assert targets.title_of(target.name, target.version) == f"kafka {target.version} {form} {target.name[-8:]}"
    assert "/" not in target.name


def test_a_build_runs_on_runtimes_with_jars_and_its_known_settings_are_checked(tmp_path: Path) -> None:
    path = str(of_form("distribution", tmp_path))
    target, nothing = find_target(path), SimpleNamespace()
    chosen, reason = choose("auto", RuntimeRequest(target, nothing, nothing))  # type: ignore[arg-type]
    assert (chosen, reason) == (LOCAL, f"{target.name} has no image")
    plan_run(RunOptions(path, "all", runtime="local"))
    with pytest.raises(UsageError, match=r"--runtime docker: .* does not run there; choose local or ssh"):
        plan_run(RunOptions(path, "all", runtime="docker"))
    with pytest.raises(UsageError, match="--image is for --runtime docker, and contradicts --target"):
        plan_run(RunOptions(path, "all", image="kafka"))
    with pytest.raises(UsageError, match="images are only built of released versions"):
        images.build_image(nothing, target, nothing, nothing)  # type: ignore[arg-type]
    raise_if_unfit(target, {"broker": {"my.new.setting": "1"}, "topic": {"delete.retention.ms": "1"}})
    with pytest.raises(UsageError, match=r"delete\.retention\.ms takes a whole number"):
        raise_if_unfit(target, {"topic": {"delete.retention.ms": "soon"}})
    assert note_on(target) == f"--set is checked against the settings of Kafka 4.4.0: {VERSION} has no list"


def test_a_run_of_a_build_is_repeated_and_resumed_by_name(tmp_path: Path) -> None:
    options = RunOptions(str(of_form("distribution", tmp_path)), "stuck-lso", seed=7, runtime="local")
    target, java = find_target(options.target), SimpleNamespace(version_text="17")
    ready = PreparedRuntime({"name": "local"}, lambda _: pytest.fail("no run is conducted"))
    equipment = Equipment(target, java, "local", ready, jars_for(target))  # type: ignore[arg-type]
    run = PreparedRun(plan_run(options), equipment)
    command = command_line(repeatable(run, RunFolder(tmp_path)))
    assert f"--target {target.name} " in command
    content = json.loads(json.dumps(begin_manifest(RunFolder(tmp_path), run, command).content, default=vars))
    assert content["jars"] == jars_for(target).digests
    assert (content["build"]["commit"], content["build"]["path"]) == (COMMIT, options.target)
    assert find_target(options_of(content).target) == target


def test_a_night_has_a_column_and_the_users_expectations_for_each_build(tmp_path: Path) -> None:
    path, folder = str(of_form("archive", tmp_path)), classes(tmp_path / "classes")
    names = [find_target(spec).name for spec in (path, patched("kafka-4.3", folder))]
    matrix = read_matrix(None, {"targets": ["kafka-4.3", path, f"kafka-4.3+{folder}"]}, lambda _: None)
    assert [outage.target for outage in matrix.outages] == ["kafka-4.3", *names]
    assert from_json(Matrix, json.loads(json.dumps(to_json(matrix)))) == matrix
    assert {one.verdict for one in expected(matrix.cells, read_expectations(None)).values()} == {"anomaly"}
    words: Sequence[str] = command_of(matrix.outages[1], matrix, tmp_path, None)
    assert words[:3] == ["run", "--target", names[0]]
    file = tmp_path / "expectations.toml"
    file.write_text('[[expect]]\ntargets = ["kafka-4.5*"]\nverdict = "clean"\nwhy = "cured"\n')
    matrix = read_matrix(None, {"targets": [str(of_form("archive", tmp_path)), "kafka-4.4"]}, lambda _: None)
    verdicts = {cell.target: one.verdict for cell, one in expected(matrix.cells, read_expectations(file)).items()}
    assert list(verdicts.values()) == ["clean", "anomaly"]
