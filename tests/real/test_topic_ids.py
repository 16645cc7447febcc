"""Topics are deleted by id: a deletion that comes late, or twice, spares the topic that was created since."""

import pytest
from known_bugs_rig import booted

from harness.errors import HarnessError

TOPIC = "t"


@pytest.mark.parametrize("version", ["3.9.2", "4.4.0"])
def test_a_deletion_by_id_spares_the_topic_that_comes_next(version: str) -> None:
    with booted(version) as bed:
        bed.create_topic(TOPIC, (1,))
        former = bed.cluster.admin.topic_id(TOPIC)
        bed.cluster.admin.delete_topic(TOPIC, former)
        bed.cluster.wait(lambda: not bed.cluster.admin.partitions([TOPIC]), "the topic to be gone")
        bed.create_topic(TOPIC, (1,))
        with pytest.raises(HarnessError, match="topic t cannot be deleted: This server does not host this topic ID"):
            bed.cluster.admin.delete_topic(TOPIC, former)
        assert bed.cluster.admin.topic_id(TOPIC) != former
        bed.cluster.admin.delete_topic(TOPIC)
        bed.cluster.wait(lambda: not bed.cluster.admin.partitions([TOPIC]), "the topic to be gone again")
        with pytest.raises(HarnessError, match="topic t has no id"):
            bed.cluster.admin.topic_id(TOPIC)
