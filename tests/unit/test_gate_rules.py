"""The rules of the gate, on brokers' own metadata images: records that wait, and copies that start again.

``gate_cases/GateCases.java`` is compiled with the agent and applies its rules to a table of cases, by the classes of
the oldest and of the newest version: all cases of a version in one JVM.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from java_cases import agent, classpath_of, compile_java, run_java

CASES = Path(__file__).parent / "gate_cases" / "GateCases.java"
WAITS = "true an assigned replica is out of the ISR"

# fmt: off
TABLE: dict[str, str] = {
    # Records that wait: decides OPTIONS what the image shows, of orders-0 on broker 2
    "decides - isr=1,3,2": "false",
    "decides - isr=2,1,3": "false",
    "decides - isr=1,2": f"{WAITS} [3]",
    "decides - isr=2": f"{WAITS} [1, 3]",
    "decides - replicas=1,3,2 isr=1,3 adding=2": f"{WAITS} [2]",
    "decides - replicas=1,2,3,4 isr=1,2,3": f"{WAITS} [4]",
    "decides - isr=1,3,2 no-image": "true no metadata image yet []",
    "decides - isr=1,3,2 age=29000": "false",
    "decides - isr=1,3,2 age=31000": "true the metadata image is old []",
    "decides max-image-age-ms=60000 isr=1,3,2 age=31000": "false",
    "decides max-image-age-ms=100 isr=1,3,2 age=5000": "true the metadata image is old []",
    "decides - isr=1,3,2 age=-60000": "false",  # the controller's clock is ahead
    "decides - isr=1,3,2 fenced": "true this broker is fenced []",
    "decides - isr=1,3,2 unregistered": "true this broker is fenced []",
    "decides - replicas=1,3 isr=1,3": "true the metadata image has no replica of the partition on this broker []",
    "decides - topic=others isr=1,3,2": "true the metadata image has no replica of the partition on this broker []",
    "decides topics=payments isr=1,3": "false",
    "decides except=orders isr=1,3": "false",
    "decides - isr=1,3,2 fails": "true",  # whatever fails makes the partition wait
    # Patterns of topics
    "covers topics=orders-*:pay? orders-1": "true",
    "covers topics=orders-*:pay? pays": "true",
    "covers topics=orders-*:pay? payments": "false",
    "covers topics=orders.* ordersX": "false",
    "covers except=scratch-* scratch-1": "false",
    "covers except=scratch-* __consumer_offsets": "true",
    # Options that do not fit
    "covers topics=a/b x": "error: topics=a/b: 'a/b' is no pattern of topic names",
    "covers hold=some x": "error: hold=some: give all or markers",
    "covers max-unsynced-ms=-1 x": "error: max-unsynced-ms=-1: give a number of milliseconds, at least 0",
    "covers give-up-after-ms=-1 x": "error: give-up-after-ms=-1: give a number of milliseconds, at least 0",
    "covers max-image-age-ms=soon x": "error: max-image-age-ms=soon: give a number of milliseconds, at least 1",
    "covers topic=x x": "error: there is no option 'topic'; options are topics, except, max-image-age-ms,"
                        " give-up-after-ms, max-unsynced-ms and hold",
    "covers topics x": "error: 'topics' is no option: write name=value",
    # Giving up: holds AFTER_MS, then looks at TIME_MS:MISSING:SIZE_BYTES
    "holds 0 0:2:100 1000000:2:300": "true, true, orders-0 1000000 ms 200 bytes [2]",
    "holds 500 0:2:100 499:2:100": "true, true, orders-0 499 ms 0 bytes [2]",
    "holds 500 0:2:100 500:2:150": "true, false, orders-0 500 ms 50 bytes [2] given up",
    "holds 500 0:2:100 600:2:100 700:2,3:100": "true, false, true, orders-0 700 ms 0 bytes [2, 3]",
    "holds 500 0:2:100 400:-:100 600:2:100": "true, false, true, orders-0 0 ms 0 bytes [2]",
    "holds 500 0:2:100 400:3:100 600:3:100": "true, true, true, orders-0 600 ms 0 bytes [3]",
    "holds 0 0:2:100 10:-:100": "true, false",
    "holds 500 0:2:100:0 10:2:100:3600000": "true, true, orders-0 10 ms 0 bytes [2]",  # the broker's clock is set
    "gives-up 50 1,2 1,2": "true false",
    "gives-up 50 1,2 1,2,3 1,2": "true true",  # it was back, and left again, between two looks of a cleaner
    # A copy that begins anew: anew OF IN_ISR LOG LEADER FED_BY
    "anew adding not some 1 -": "added",
    "anew adding not empty 1 -": "no",
    "anew adding counted some 1 -": "no",
    "anew adding not some 1 1": "no",
    "anew adding not some 3 1": "other-leader",
    "anew assigned not some 1 -": "no",
    "anew assigned not some 3 1": "other-leader",
    "anew assigned counted some 3 1": "no",
    "anew assigned not lost 1 -": "lost",
    "anew assigned not lost 1 1": "lost",
    "anew assigned counted lost 1 -": "no",
    # What a truncation drops: truncates OFFSET HIGH_WATERMARK CLEANED_TO IN_ISR
    "truncates 10 10 5 not": "no",
    "truncates 9 10 5 not": "truncated",
    "truncates 9 5 10 not": "truncated",
    "truncates 9 10 5 counted": "no",
    # The same by images, one a leader epoch
    "gate replicas=1,3,2/isr=1,3/adding=2/end=500": "emptied",
    "gate replicas=1,3,2/isr=1,3/end=500": "kept",
    "gate replicas=1,3,2/isr=1,3,2/adding=2/end=500": "kept",
    "gate replicas=1,3,2/isr=1,3/adding=2/elr=2/end=500": "kept",
    "gate replicas=1,3,2/isr=1,3/adding=2/end=500/delete": "kept",
    "gate replicas=1,3/isr=1,3/end=500": "kept",
    "gate adding=2/leader=1 adding=2/leader=3/end=200": "kept emptied",
    "gate adding=2/leader=1 adding=2/leader=1/end=200": "kept kept",
    "gate adding=2/leader=1 adding=2/leader=3/end=200 adding=2/leader=1/end=300": "kept emptied emptied",
    "gate adding=2/leader=1 adding=2/leader=1/end=200/restart": "kept emptied",
    "gate leader=1 leader=3/end=200": "kept emptied",  # a disk was lost: nothing is added
    "gate leader=1 leader=3/end=200/isr=1,2,3 leader=1/end=300": "kept kept kept",
    # A broker that restarts knows from which leader a first copy began; not of a replica that is being added, whose
    # folder may be an old one.
    "gate leader=1 leader=1/end=200/restart": "kept kept",
    "gate leader=1 leader=3/end=200/restart": "kept emptied",
    "gate leader=1 leader=1/end=200/restart leader=3/end=300": "kept kept emptied",
    "gate leader=1 leader=1/isr=1,3,2/same-epoch leader=3/end=200/restart": "kept - kept",
    "gate leader=1 leader=1/end=200/restart leader=1/isr=1,3,2/same-epoch leader=3/end=300/restart": "kept kept - kept",
    "gate leader=1 leader=1/end=200/restart/torn": "kept emptied",
    "gate leader=1 leader=3/isr=1,3,2/end=200/restart leader=3/end=200/restart": "kept kept kept",
    # A log that ends below its high watermark checkpoint when its broker starts
    "gate leader=1/end=200/hw=200": "kept",
    "gate leader=1/end=200/hw=201": "emptied",
    "gate leader=1/end=200/hw=201/damaged": "emptied errors",  # the checkpoint of another log directory
    "gate leader=1/end=200/hw=201/isr=1,3,2": "kept",
    "gate leader=1/end=200/hw=201 leader=3/end=150": "emptied emptied",  # its copy began anew, and the leader changed
    "gate leader=1/end=200/hw=201 leader=1/end=150": "emptied kept",  # a checkpoint counts once
    # With a minute for records to get to the disk, the older one of two copies of it counts
    "gate leader=1/end=200/hw=201/kept=1": "kept",
    "gate leader=1/end=200/hw=201/then=200/kept=2": "emptied",
    "gate leader=1/end=200/hw=200/then=300/kept=2": "kept",
    # A log with missing records between two segments, which were neither synced nor cleaned.
    "gate leader=1/end=200/segments=0-100,100-200": "kept",
    "gate leader=1/end=200/segments=0-90,100-200": "emptied",
    "gate leader=1/end=200/segments=0-0,100-200": "emptied",
    "gate leader=1/end=200/segments=0-100,100-100,150-200": "emptied",
    "gate leader=1/end=200/segments=0-100,100-150": "kept",
    "gate leader=1/end=200/segments=0-90-30,100-200": "emptied",  # half a batch
    "gate leader=1/end=200/segments=0-100-30,100-200": "kept",
    "gate leader=1/end=200/segments=0-90,100-200/synced=99": "emptied",
    "gate leader=1/end=200/segments=0-90,100-200/synced=100": "kept",
    "gate leader=1/end=200/segments=0-90,100-200/cleaned=90": "kept",
    "gate leader=1/end=200/segments=0-90,100-150,160-200/cleaned=100": "emptied",
    "gate leader=1/end=200/segments=0-90,100-200/isr=1,3,2": "kept",
    "gate leader=1/end=200/segments=0-90,100-200 leader=3/end=150": "emptied emptied",
    "gate leader=1/end=200/segments=0-90,100-200 leader=1/end=150": "emptied kept",
    "gate leader=1/end=200/hw=300/then=200/kept=3": "kept",
    # A truncation below the high watermark, or below the cleaned offset; the following copy is a first copy.
    "gate leader=1/end=200 leader=3/end=200/hw=150/truncate=150": "kept 150",
    "gate leader=1/end=200 leader=3/end=200/hw=150/truncate=149": "kept 0",
    "gate leader=1/end=200 leader=3/end=200/truncate=149/cleaned=150": "kept 0",
    "gate leader=1/end=200 leader=3/end=200/hw=150/truncate=149/isr=1,2,3": "kept 149",
    "gate leader=1/end=200 leader=3/end=200/hw=150/truncate=149/delete": "kept 149",
    "gate leader=1/end=200 leader=3/end=200/hw=150/truncate=149 leader=1/end=100": "kept 0 emptied",
    # Once it was in the ISR, its first copy is over: that it fell out again is an outage like any other.
    "gate leader=1 leader=1/isr=1,3,2/same-epoch leader=3/end=200": "kept - kept",
    "gate adding=2/leader=1 adding=2/leader=1/isr=1,3,2/same-epoch leader=3/end=200": "kept - kept",
    "gate adding=2/leader=1 adding=2/leader=1/same-epoch adding=2/leader=3/end=200": "kept - emptied",
}
# fmt: on


@pytest.fixture(scope="module", params=["kafka-3.9", "kafka-4.4"])
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    classes = tmp_path_factory.mktemp("classes")
    compile_java(classes, CASES)
    classpath = os.pathsep.join([str(classes), str(agent().jar), classpath_of(request.param)])
    given, flags = "".join(f"{case}\n" for case in TABLE), (f"-Djava.io.tmpdir={classes}",)
    done = run_java("compaction.gate.GateCases", classpath, given=given, flags=flags)
    assert done.returncode == 0, done.stderr
    return dict(zip(TABLE, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize(("case", "answer"), TABLE.items(), ids=TABLE)
def test_rule(answers: Mapping[str, str], case: str, answer: str) -> None:
    assert answers[case] == answer
