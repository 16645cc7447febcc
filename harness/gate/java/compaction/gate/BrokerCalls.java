package compaction.gate;

/** What the gate asks of a broker's own objects. */
interface BrokerCalls {
    Object topicPartition(Object log) throws Throwable;

    long size(Object log) throws Throwable;

    long logStartOffset(Object log) throws Throwable;

    long logEndOffset(Object log) throws Throwable;

    boolean isCompacted(Object log) throws Throwable;

    /**
     * Drops every record of the replica, and of the one that may be replacing it in another log directory. LogManager
     * stops a cleaner that is at work on it, and takes the cleaner's checkpoint back.
     */
    void empty(Object replicaManager, Object partition) throws Throwable;
}
