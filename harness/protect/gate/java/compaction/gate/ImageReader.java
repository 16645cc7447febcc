package compaction.gate;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.TopicImage;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.PartitionRegistration;

/**
 * From a broker's metadata image to what decisions need. With {@link Log} the only class that is compiled against
 * Kafka's libraries: {@link References} checks each use when the broker starts.
 */
final class ImageReader {
    private ImageReader() {
    }

    static MetadataImage imageOf(Object image) {
        return (MetadataImage) image;
    }

    /** When the last record of the image was appended, by the clock of the controller that appended it. */
    static long appendTimeMs(Object image) {
        return imageOf(image).provenance().lastContainedLogTimeMs();
    }

    static String topic(Object topicPartition) {
        return ((TopicPartition) topicPartition).topic();
    }

    static int partition(Object topicPartition) {
        return ((TopicPartition) topicPartition).partition();
    }

    static View view(Object image, Object topicPartition, int broker, long imageAgeMs) {
        BrokerRegistration registration = imageOf(image).cluster().broker(broker);
        PartitionRegistration partition = registrationOf(image, topicPartition);
        return new View(
            imageAgeMs,
            registration == null || registration.fenced(),
            partition != null && Decision.contains(partition.replicas, broker),
            partition == null ? new int[0] : partition.replicas,
            partition == null ? new int[0] : partition.isr);
    }

    /** The copy of a follower that is about to fetch; null where the image has no replica of it here. */
    static Copy copy(Object image, Object topicPartition, int broker) {
        PartitionRegistration partition = registrationOf(image, topicPartition);
        if (partition == null || !Decision.contains(partition.replicas, broker))
            return null;
        boolean isCounted = partition.leader == broker
            || Decision.contains(partition.isr, broker)
            || Decision.contains(partition.elr, broker)
            || Decision.contains(partition.lastKnownElr, broker);
        String id = imageOf(image).topics().getTopic(topic(topicPartition)).id() + ":" + partition(topicPartition);
        return new Copy(id, partition.leader, Decision.contains(partition.addingReplicas, broker), isCounted);
    }

    private static PartitionRegistration registrationOf(Object image, Object topicPartition) {
        TopicImage topic = imageOf(image).topics().getTopic(topic(topicPartition));
        return topic == null ? null : topic.partitions().get(partition(topicPartition));
    }

    /** A follower's replica as an image shows it. */
    static final class Copy {
        /** Of the topic id and the partition, so that a topic that was made anew is another. */
        final String id;
        final int leader;
        final boolean isAdding;
        final boolean isCounted;

        Copy(String id, int leader, boolean isAdding, boolean isCounted) {
            this.id = id;
            this.leader = leader;
            this.isAdding = isAdding;
            this.isCounted = isCounted;
        }
    }
}
