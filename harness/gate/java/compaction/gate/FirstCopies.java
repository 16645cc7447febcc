package compaction.gate;

import compaction.gate.ImageReader.Copy;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * From which leader the replicas on this broker are copied that have yet to be in the ISR for the first time, as far as
 * their copies began since the broker started.
 */
final class FirstCopies {
    private final Map<Object, Copy> copies = new ConcurrentHashMap<>();

    /** Returns the leader from which all of the replica's log came; null where that is not known. */
    Integer leaderOf(Object partition, Copy copy) {
        Copy begun = copies.get(partition);
        return begun == null || !begun.id.equals(copy.id) ? null : Integer.valueOf(begun.leader);
    }

    void begin(Object partition, Copy copy) {
        copies.put(partition, copy);
    }

    /**
     * Forgets every copy that is over, as its replica is in the ISR by this image, or is not on this broker any more. A
     * replica that falls out of the ISR later goes on from its log, as in any outage.
     */
    void forgetComplete(Object image, int broker) {
        copies.entrySet().removeIf(entry -> {
            Copy now = ImageReader.copy(image, entry.getKey(), broker);
            return now == null || now.isCounted || !now.id.equals(entry.getValue().id);
        });
    }
}
