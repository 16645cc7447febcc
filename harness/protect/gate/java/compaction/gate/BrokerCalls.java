package compaction.gate;

import java.io.File;
import java.util.List;

/** What the gate asks of a broker's own objects. */
interface BrokerCalls {
    Object topicPartition(Object log) throws Throwable;

    /** The folder of the partition. */
    File folder(Object log) throws Throwable;

    long size(Object log) throws Throwable;

    long logStartOffset(Object log) throws Throwable;

    long logEndOffset(Object log) throws Throwable;

    long highWatermark(Object log) throws Throwable;

    boolean isCompacted(Object log) throws Throwable;

    /** All log directories that are configured. */
    List<File> logDirectories(Object replicaManager) throws Throwable;

    /** The log of a partition on this broker; null where there is none. */
    Object logOf(Object replicaManager, Object partition) throws Throwable;

    /**
     * Drops every record of the replica, and of the one that may be replacing it in another log directory. LogManager
     * stops a cleaner that is at work on it, and takes the cleaner's checkpoint back.
     */
    void empty(Object replicaManager, Object partition) throws Throwable;

    /** Whether a fetcher copies from other brokers, and not from one log directory of this broker to another. */
    boolean fetchesFromLeaders(Object fetcher) throws Throwable;

    /** The offset of a truncation that a fetcher is about to carry out. */
    long offsetOf(Object truncation) throws Throwable;

    /** A truncation of the whole log, after which the fetcher begins with the first record. */
    Object truncationOfAll() throws Throwable;
}
