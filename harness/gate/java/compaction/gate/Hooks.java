package compaction.gate;

import java.util.OptionalLong;

/** What the broker's own methods call once {@link Weaver} has changed them. Nothing here throws into the broker but
 * {@link #refuseZooKeeper()}. */
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

    /** In KRaftMetadataCache.setImage. */
    public static void image(Object image) {
        gate.onImage(image);
    }

    /** In ReplicaManager.applyDelta, before followers are told of their leaders. */
    public static void applying(Object replicaManager, Object image) {
        try {
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
