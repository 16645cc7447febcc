package compaction.gate;

import compaction.gate.Decision.Hold;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Predicate;

/** Which partitions are held, since when, and whom they wait for. Cleaner threads write it, JMX reads it. */
final class Holds {
    static final long UNKNOWN_SIZE = -1;

    private final long giveUpAfterMs;
    private final Map<Object, Held> held = new ConcurrentHashMap<>();

    Holds(long giveUpAfterMs) {
        this.giveUpAfterMs = giveUpAfterMs;
    }

    /**
     * Takes note of what was decided on a partition, and returns whether its compaction waits.
     *
     * <p>Each replica is given up by itself, after it was missing for long enough: one that left a moment ago is waited
     * for although another never came back.
     */
    boolean waits(Object partition, Hold hold, Collection<Integer> missing, long sizeBytes, long nowMs) {
        Held entry = held.get(partition);
        if (hold == Hold.NONE) {
            if (entry != null) {
                held.remove(partition);
                if (entry.isLogged)
                    Log.event("released", partition, nowMs, entry.summary(nowMs));
            }
            return false;
        }
        if (entry == null) {
            entry = new Held(nowMs);
            held.put(partition, entry);
        }
        entry.grow(sizeBytes);
        entry.note(missing, nowMs);
        boolean isGivenUp = hold == Hold.NOT_IN_SYNC && giveUpAfterMs > 0 && entry.haveLeftBy(nowMs - giveUpAfterMs);
        if (hold != entry.hold || isGivenUp != entry.isGivenUp) {
            entry.hold = hold;
            entry.isGivenUp = isGivenUp;
            entry.isLogged |= !hold.isOfBroker;
            if (!hold.isOfBroker)
                Log.event(isGivenUp ? "gave-up" : "held", partition, nowMs,
                    "reason=" + hold.label() + " missing=" + missing + (isGivenUp ? " " + entry.summary(nowMs) : ""));
        }
        return !isGivenUp;
    }

    /** Forgets partitions that are no longer on this broker: no cleaner looks at them again. */
    void retain(Predicate<Object> isHere) {
        held.keySet().removeIf(isHere.negate());
    }

    boolean isEmpty() {
        return held.isEmpty();
    }

    List<HeldPartition> list(long nowMs) {
        List<HeldPartition> list = new ArrayList<>();
        held.forEach((partition, entry) -> list.add(entry.shown(String.valueOf(partition), nowMs)));
        list.sort((a, b) -> a.getTopicPartition().compareTo(b.getTopicPartition()));
        return list;
    }

    private static final class Held {
        private final long sinceMs;
        private long sizeAtFirstBytes = UNKNOWN_SIZE;
        private final Map<Integer, Long> missingSinceMs = new TreeMap<>();
        private long sizeBytes;
        private volatile Hold hold;
        private volatile boolean isGivenUp;
        private volatile boolean isLogged;

        Held(long sinceMs) {
            this.sinceMs = sinceMs;
        }

        synchronized void grow(long nowBytes) {
            if (nowBytes == UNKNOWN_SIZE)
                return;
            sizeBytes = nowBytes;
            if (sizeAtFirstBytes == UNKNOWN_SIZE)
                sizeAtFirstBytes = nowBytes;
        }

        private synchronized long grownBytes() {
            return sizeAtFirstBytes == UNKNOWN_SIZE ? 0 : sizeBytes - sizeAtFirstBytes;
        }

        synchronized void note(Collection<Integer> missing, long nowMs) {
            missingSinceMs.keySet().retainAll(missing);
            for (Integer replica : missing)
                missingSinceMs.putIfAbsent(replica, nowMs);
        }

        synchronized boolean haveLeftBy(long timeMs) {
            for (long since : missingSinceMs.values())
                if (since > timeMs)
                    return false;
            return !missingSinceMs.isEmpty();
        }

        String summary(long nowMs) {
            return "held_ms=" + (nowMs - sinceMs) + " grown_bytes=" + grownBytes();
        }

        synchronized HeldPartition shown(String partition, long nowMs) {
            return new HeldPartition(partition, String.valueOf(hold == null ? null : hold.text),
                new ArrayList<>(missingSinceMs.keySet()).toString(), nowMs - sinceMs, grownBytes(), isGivenUp);
        }
    }
}
