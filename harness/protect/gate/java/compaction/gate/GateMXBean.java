package compaction.gate;

/** The gate in JMX: {@code compaction.gate:type=Gate}. */
public interface GateMXBean {
    /** Partitions whose compaction waits now. */
    int getHeldPartitions();

    /** Partitions that are cleaned although replicas are missing, as these were given up. */
    int getGivenUpPartitions();

    /** For how long the partition waits that waits longest; 0 without one. */
    long getLongestHeldMs();

    /** By how much the logs of held partitions are larger than when they were held first. */
    long getGrownBytes();

    /** How old the metadata image is; -1 without one. */
    long getImageAgeMs();

    /** Replicas on this broker that dropped their log and began their copy anew, since the broker started. */
    long getCopiesBegunAnew();

    /** Failures inside the gate since the broker started: partitions wait where the gate fails. */
    long getErrors();

    /** The partitions that are held or given up. */
    HeldPartition[] getHeld();
}
