package compaction.gate;

/** What a broker knows of one of its partitions at a moment: no class of Kafka, so that decisions can be tried alone. */
final class View {
    static final int NO_LEADER = -1;

    /** Milliseconds since the image was known to be current. */
    final long imageAgeMs;
    /** Whether the image shows this broker as fenced, or does not show it. */
    final boolean isFenced;
    /** Whether the image has the partition, with a replica on this broker. */
    final boolean isAssigned;
    /** Every assigned replica: those that are being added or removed as well. */
    final int[] replicas;
    final int[] isr;

    View(long imageAgeMs, boolean isFenced, boolean isAssigned, int[] replicas, int[] isr) {
        this.imageAgeMs = imageAgeMs;
        this.isFenced = isFenced;
        this.isAssigned = isAssigned;
        this.replicas = replicas;
        this.isr = isr;
    }
}
