package org.apache.kafka.metadata;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.server.common.KRaftVersion;
import org.junit.jupiter.api.Test;

class AllReplicasInSyncTest {
    private static final Uuid TOPIC = Uuid.randomUuid();
    private static final TopicPartition PARTITION = new TopicPartition("orders", 0);
    private static final long APPENDED_MS = 1_000_000;
    private static final long MAX_AGE_MS = 300;

    private final KRaftMetadataCache cache = new KRaftMetadataCache(1, () -> KRaftVersion.KRAFT_VERSION_1);

    @Test
    void aPartitionThatTheImageDoesNotHave() {
        assertFalse(isInSync(PARTITION));
        set(List.of(1, 2, 3), List.of(1, 2, 3), List.of());
        assertFalse(isInSync(new TopicPartition("orders", 1)));
    }

    @Test
    void aReplicaThatIsOutOfTheIsr() {
        set(List.of(1, 2, 3), List.of(1, 3), List.of());
        assertFalse(isInSync(PARTITION));
        set(List.of(1, 2, 3), List.of(3, 1, 2), List.of());
        assertTrue(isInSync(PARTITION));
    }

    @Test
    void aReplicaThatIsBeingAddedCounts() {
        set(List.of(1, 2, 3), List.of(1, 3), List.of(2));
        assertFalse(isInSync(PARTITION));
    }

    @Test
    void anOldImage() {
        set(List.of(1, 2, 3), List.of(1, 2, 3), List.of());
        assertTrue(cache.allReplicasInSync(PARTITION, APPENDED_MS + MAX_AGE_MS, MAX_AGE_MS));
        assertFalse(cache.allReplicasInSync(PARTITION, APPENDED_MS + MAX_AGE_MS + 1, MAX_AGE_MS));
        assertTrue(cache.allReplicasInSync(PARTITION, APPENDED_MS + MAX_AGE_MS + 1, Long.MAX_VALUE));
    }

    @Test
    void anImageOfAClockThatIsAhead() {
        set(List.of(1, 2, 3), List.of(1, 2, 3), List.of());
        assertTrue(cache.allReplicasInSync(PARTITION, APPENDED_MS - MAX_AGE_MS, MAX_AGE_MS));
        assertFalse(cache.allReplicasInSync(PARTITION, APPENDED_MS - MAX_AGE_MS - 1, MAX_AGE_MS));
    }

    private boolean isInSync(TopicPartition partition) {
        return cache.allReplicasInSync(partition, APPENDED_MS, MAX_AGE_MS);
    }

    private void set(List<Integer> replicas, List<Integer> isr, List<Integer> adding) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        delta.replay(new TopicRecord().setName(PARTITION.topic()).setTopicId(TOPIC));
        delta.replay(new PartitionRecord().setTopicId(TOPIC).setPartitionId(0).setReplicas(replicas).setIsr(isr)
            .setAddingReplicas(adding).setLeader(1));
        cache.setImage(delta.apply(new MetadataProvenance(1, 1, APPENDED_MS, true)));
    }
}
