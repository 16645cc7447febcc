package compaction.gate;

import compaction.gate.Decision.Hold;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;

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
     *
     * @param timeMs the time of the event for the log, by a clock that may be set
     * @param nowMs by a clock that nobody sets: a step of the other must not give anybody up
     */
    boolean waits(Object partition, Hold hold, Collection<Integer> missing, long sizeBytes, long timeMs, long nowMs) {
        Held entry = held.get(partition);
        if (hold == Hold.NONE) {
            if (entry != null) {
                held.remove(partition);
                if (entry.isLogged)
                    Log.event("released", partition, timeMs, entry.summary(nowMs));
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
                Log.event(isGivenUp ? "gave-up" : "held", partition, timeMs,
                    "reason=" + hold.label() + " missing=" + missing + (isGivenUp ? " " + entry.summary(nowMs) : ""));
        }
        return !isGivenUp;
    }

    /**
     * Forgets replicas that are back, though they may leave again before a cleaner looks, and partitions that are no longer
     * on this broker, which no cleaner looks at again.
     *
     * @param missingNow which replicas of a partition are missing; null for a partition that is not here
     */
    void see(Function<Object, Collection<Integer>> missingNow) {
        held.entrySet().removeIf(one -> {
            Collection<Integer> missing = missingNow.apply(one.getKey());
            if (missing != null)
                one.getValue().retain(missing);
            return missing == null;
        });
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

        synchronized void retain(Collection<Integer> missing) {
            missingSinceMs.keySet().retainAll(missing);
        }

        synchronized void note(Collection<Integer> missing, long nowMs) {
            retain(missing);
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
