package compaction.gate;

import java.util.OptionalLong;

/**
 * What the broker's own methods call once {@link Weaver} has changed them. Only two things are thrown into the broker on
 * purpose: what ends a cleaner's pass, and the refusal of ZooKeeper.
 */
public final class Hooks {
    static volatile Gate gate;
    static volatile BrokerApi broker;

    private static final OptionalLong NEVER = OptionalLong.of(Long.MAX_VALUE);
    private static final ThreadLocal<Boolean> MARKERS_WAIT = ThreadLocal.withInitial(() -> false);

    private Hooks() {
    }

    /**
     * In LogCleanerManager.cleanableOffsets, after it asked for the last stable offset, which bounds what may be
     * cleaned. A held partition is bounded by an offset below everything: nothing of it is cleanable, its ratio is 0,
     * and the cleaner chooses another. deletableLogs() does not come here: retention goes on.
     */
    public static long cleanableUpTo(long lastStableOffset, Object log) {
        Gate now = gate;
        return now.waits(log) && !now.options().holdsMarkersOnly ? -1L : lastStableOffset;
    }

    /**
     * In LogCleanerManager.checkCleaningAborted, which a cleaner calls before each chunk that it reads: a pass that began
     * before the partition was held ends here. It is a matter of replicas that are being added: what the pass is about
     * to remove was copied by every replica that was assigned when it began, but a new one may just have copied the
     * value and not its tombstone. The leader does not answer a new replica before this broker's image has it
     * (Partition.followerReplicaOrThrow; images are set before they are applied).
     */
    public static void goingOn(Object partition) {
        abortIf(!hasBegunHeld() && gate.waits(partition, Holds.UNKNOWN_SIZE));
    }

    /** In UnifiedLog.replaceSegments: the same, just before cleaned segments take the place of others. */
    public static void swapping(Object log) {
        abortIf(!hasBegunHeld() && gate.waits(log));
    }

    /** Whether this thread's pass began while the partition was held, and keeps tombstones and markers for that. */
    private static boolean hasBegunHeld() {
        return gate.options().holdsMarkersOnly && MARKERS_WAIT.get();
    }

    private static void abortIf(boolean waits) {
        if (!waits)
            return;
        RuntimeException aborted;
        try {
            aborted = broker.aborted();
        } catch (Throwable error) {
            throw new IllegalStateException(error);
        }
        throw aborted;
    }

    /** In KRaftMetadataCache.setImage. */
    public static void image(Object image) {
        gate.onImage(image);
    }

    /** In ReplicaManager.applyDelta, before followers are told of their leaders. */
    public static void applying(Object replicaManager, Object image) {
        try {
            gate.onStart(replicaManager);
            gate.onApply(broker.localBrokerId(replicaManager), image);
        } catch (Throwable error) {
            Log.error("the broker's id cannot be read: every partition waits", error);
        }
    }

    /**
     * In ReplicaManager.initialFetchOffset. Its caller, applyLocalFollowersDelta, has stopped the fetchers of all
     * followers with a new leader epoch, and starts them at the offset that this method returns.
     */
    public static void beforeFetch(Object replicaManager, Object log) {
        gate.beforeFetch(replicaManager, log);
    }

    /**
     * In AbstractFetcherThread.getOffsetTruncationState, which says where a follower truncates its log, as its leader's
     * differs from there on. The fetcher goes on at that offset.
     */
    public static Object truncation(Object truncation, Object fetcher, Object partition) {
        return gate.beforeTruncation(truncation, fetcher, partition);
    }

    /** In Cleaner.doClean, where only tombstones and markers wait: by the ISR after the range was chosen. */
    public static void cleaning(Object toClean) {
        boolean waits = true;
        try {
            waits = gate.waits(broker.log(toClean));
        } catch (Throwable error) {
            Log.error("a log that is cleaned cannot be looked at: its tombstones and markers wait", error);
        }
        MARKERS_WAIT.set(waits);
    }

    /** In Cleaner, wherever it asks a batch for its delete horizon: while the partition is held, none has passed. */
    public static OptionalLong horizon(OptionalLong horizonMs) {
        return horizonMs.isPresent() && MARKERS_WAIT.get() ? NEVER : horizonMs;
    }

    /** In KafkaServer.startup, the broker of ZooKeeper mode (3.9): there is no image to decide by. */
    public static void refuseZooKeeper() {
        String text = "the gate needs KRaft, and this broker runs with ZooKeeper: start it without the agent";
        IllegalStateException error = new IllegalStateException("compaction-gate: " + text);
        Log.error(text, error);
        throw error;
    }
}
