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

    private final KRaftMetadataCache cache = new KRaftMetadataCache(1, () -> KRaftVersion.KRAFT_VERSION_1);

    @Test
    void aPartitionThatTheImageDoesNotHave() {
        assertFalse(cache.allReplicasInSync(PARTITION));
        set(List.of(1, 2, 3), List.of(1, 2, 3), List.of());
        assertFalse(cache.allReplicasInSync(new TopicPartition("orders", 1)));
    }

    @Test
    void aReplicaThatIsOutOfTheIsr() {
        set(List.of(1, 2, 3), List.of(1, 3), List.of());
        assertFalse(cache.allReplicasInSync(PARTITION));
        set(List.of(1, 2, 3), List.of(3, 1, 2), List.of());
        assertTrue(cache.allReplicasInSync(PARTITION));
    }

    @Test
    void aReplicaThatIsBeingAddedCounts() {
        set(List.of(1, 2, 3), List.of(1, 3), List.of(2));
        assertFalse(cache.allReplicasInSync(PARTITION));
    }

    private void set(List<Integer> replicas, List<Integer> isr, List<Integer> adding) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        delta.replay(new TopicRecord().setName(PARTITION.topic()).setTopicId(TOPIC));
        delta.replay(new PartitionRecord().setTopicId(TOPIC).setPartitionId(0).setReplicas(replicas).setIsr(isr)
            .setAddingReplicas(adding).setLeader(1));
        cache.setImage(delta.apply(new MetadataProvenance(1, 1, 0, true)));
    }
}
