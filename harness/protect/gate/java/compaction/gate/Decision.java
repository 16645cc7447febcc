package compaction.gate;

import java.util.ArrayList;
import java.util.List;

/**
 * The rules of the gate, as functions of what is given to them.
 *
 * <p>Compaction of a partition waits while an assigned replica is out of the ISR. What lies below the high watermark is
 * on every member of the ISR, and a cleaner never passes the high watermark. So whatever is removed while the ISR has
 * every assigned replica was copied by all of them before. A replica that is being added counts, as its copy must get
 * what the others still have; one that is being removed counts, as a reassignment can be cancelled. A pass that is under
 * way when a replica is added ends before it replaces a segment ({@link Hooks#goingOn}, {@link Hooks#swapping}).
 *
 * <p>It also waits where this broker cannot know that: without an image, with one that is older than a bound, while
 * it is fenced (its requests may no longer reach the controller), and for a partition that the image does not
 * assign to it.
 */
final class Decision {
    /** Why compaction of a partition waits. */
    enum Hold {
        NONE("nothing is held", false),
        NO_IMAGE("no metadata image yet", true),
        OLD_IMAGE("the metadata image is old", true),
        FENCED("this broker is fenced", true),
        UNASSIGNED("the metadata image has no replica of the partition on this broker", false),
        NOT_IN_SYNC("an assigned replica is out of the ISR", false);

        final String text;
        /** Whether it is the same for every partition: then it is logged once, and not for each of them. */
        final boolean isOfBroker;

        Hold(String text, boolean isOfBroker) {
            this.text = text;
            this.isOfBroker = isOfBroker;
        }

        /** As in log lines. */
        String label() {
            return name().toLowerCase(java.util.Locale.ROOT).replace('_', '-');
        }
    }

    private Decision() {
    }

    /** Returns the reason why the partition has to wait, whoever may have been given up. */
    static Hold decide(View view, Options options) {
        if (view == null)
            return Hold.NO_IMAGE;
        if (view.imageAgeMs > options.maxImageAgeMs)
            return Hold.OLD_IMAGE;
        if (view.isFenced)
            return Hold.FENCED;
        if (!view.isAssigned)
            return Hold.UNASSIGNED;
        return missing(view).isEmpty() ? Hold.NONE : Hold.NOT_IN_SYNC;
    }

    /** Returns the assigned replicas that are not in the ISR. */
    static List<Integer> missing(View view) {
        List<Integer> missing = new ArrayList<>();
        if (view != null)
            for (int replica : view.replicas)
                if (!contains(view.isr, replica))
                    missing.add(replica);
        return missing;
    }

    /** Why a replica drops its log and begins its copy anew. */
    enum Anew {
        NO,
        /** It is being added, and this broker does not know that all of its log came from the present leader. */
        ADDED,
        /** Its copy began from an empty log, from another leader. */
        OTHER_LEADER,
        /**
         * Its log ends below a high watermark that it had a while before its broker started, or below what was cleaned; or
         * it lacks records in the middle.
         */
        LOST,
        /** It would truncate its log below its high watermark, or below what was cleaned. */
        TRUNCATED;

        /** As in log lines. */
        String label() {
            return name().toLowerCase(java.util.Locale.ROOT).replace('_', '-');
        }
    }

    /**
     * Returns why a follower has to drop its log before it fetches from a new leader epoch on, if it has to.
     *
     * <p>A replica that is being added drops whatever it has, as nobody waited for what it had: while it was
     * unassigned the ISR was full without it, and the others removed what it may lack. It begins anew where its leader
     * changes, as leaders may be cleaned to different extents: a copy that begins on one and ends on another can have a
     * value from the first and lack its tombstone, which is gone from the second. For the same reason a replica
     * whose first copy began from an empty log (a lost disk) begins anew where its leader changes.
     *
     * <p>So does one that has lost records that were replicated: meanwhile the others may have removed some of them, such
     * as a tombstone, which it does not get again.
     *
     * <p>It is safe: a replica that is in neither the ISR nor the ELR and does not lead is counted by nobody. The image
     * that is being applied tells that reliably: a leader adds a follower to the ISR only after that follower has
     * fetched in the leader's own epoch, and this is asked before the first fetch of that epoch.
     *
     * @param hasLost whether its log ended below a high watermark of a while before, or below what was cleaned, when the
     *     broker started, or had a gap ({@link SegmentGaps})
     * @param isCounted whether this replica leads, or is in the ISR or the ELR
     * @param isEmpty whether its log has no record
     * @param fedBy the leader from which the copy began, since this broker started; null where that is not known
     */
    static Anew beginsAnew(boolean isAdding, boolean hasLost, boolean isCounted, boolean isEmpty, int leader,
                           Integer fedBy) {
        if (isCounted || isEmpty)
            return Anew.NO;
        if (hasLost)
            return Anew.LOST;
        if (fedBy != null)
            return fedBy == leader ? Anew.NO : Anew.OTHER_LEADER;
        return isAdding ? Anew.ADDED : Anew.NO;
    }

    /**
     * Returns whether a follower drops its whole log, instead of truncating it to an offset. Its cleaner has removed
     * values up to where it came because of records that followed them. It was never beyond the high watermark, so that
     * nothing of this concerns a leader that was elected cleanly: that one has every record below.
     *
     * @param cleanedTo up to where this replica's log was cleaned
     */
    static Anew truncates(long offset, long highWatermark, long cleanedTo, boolean isCounted) {
        return !isCounted && offset < Math.max(highWatermark, cleanedTo) ? Anew.TRUNCATED : Anew.NO;
    }

    static boolean contains(int[] brokers, int broker) {
        if (brokers != null)
            for (int one : brokers)
                if (one == broker)
                    return true;
        return false;
    }
}
