package compaction.gate;

import compaction.gate.Decision.Anew;
import compaction.gate.Decision.Hold;
import compaction.gate.ImageReader.Copy;
import java.io.File;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** What a broker's gate remembers: the image, who is held, and from which leader each first copy began. */
final class Gate implements GateMXBean {
    private final Options options;
    private final BrokerCalls broker;
    private final Holds holds;
    private final FirstCopies copies = new FirstCopies();
    private final OffsetCheckpoints checkpoints = new OffsetCheckpoints();
    private final AtomicLong begunAnew = new AtomicLong();
    private final AtomicLong errors = new AtomicLong();

    private volatile Object replicaManager;
    private volatile Object image;
    private volatile long imageSetNanos;
    private volatile Object appliedImage;
    private volatile int brokerId = -1;
    private volatile Hold brokerHold = Hold.NONE;

    Gate(Options options, BrokerCalls broker) {
        this.options = options;
        this.broker = broker;
        this.holds = new Holds(options.giveUpAfterMs);
    }

    Options options() {
        return options;
    }

    void onImage(Object newImage) {
        imageSetNanos = System.nanoTime();
        image = newImage;
        try {
            if (!holds.isEmpty() && brokerId >= 0)
                holds.see(partition -> {
                    View view = ImageReader.view(newImage, partition, brokerId, 0);
                    return view.isAssigned ? Decision.missing(view) : null;
                });
        } catch (Throwable error) {
            failed("forgetting partitions", error);
        }
    }

    /** Keeps what the log directories had when the broker started; later calls change nothing. */
    void onStart(Object ofReplicas) {
        if (replicaManager != null)
            return;
        replicaManager = ofReplicas;
        try {
            List<File> directories = broker.logDirectories(ofReplicas);
            directories.forEach(this::readAtStart);
            if (options.maxUnsyncedMs > 0)
                keepOffsets(directories);
        } catch (Throwable error) {
            failed("finding log directories", error);
        }
    }

    private void readAtStart(File directory) {
        try {
            checkpoints.readAtStart(directory, options.maxUnsyncedMs == 0);
        } catch (Throwable error) {
            failed("reading the offset checkpoints of " + directory, error);
        }
    }

    /** Copies high watermarks twice in the time in which records have to be on disk, for as long as the broker runs. */
    private void keepOffsets(List<File> directories) {
        ScheduledExecutorService keeper = Executors.newSingleThreadScheduledExecutor(task -> {
            Thread thread = new Thread(task, "compaction-gate-offsets");
            thread.setDaemon(true);
            return thread;
        });
        long periodMs = Math.max(options.maxUnsyncedMs / 2, 1);
        keeper.scheduleWithFixedDelay(() -> {
            for (File directory : directories) {
                try {
                    OffsetCheckpoints.keep(directory);
                } catch (Throwable error) {
                    failed("copying the high watermarks of " + directory, error);
                }
            }
        }, periodMs, periodMs, TimeUnit.MILLISECONDS);
    }

    void onApply(int id, Object newImage) {
        brokerId = id;
        appliedImage = newImage;
        try {
            copies.forgetComplete(newImage, id);
        } catch (Throwable error) {
            failed("forgetting first copies", error);
        }
    }

    /** Returns whether the log's compaction waits now. Whatever fails here makes it wait. */
    boolean waits(Object log) {
        try {
            return waits(broker.topicPartition(log), broker.size(log));
        } catch (Throwable error) {
            failed("looking at " + log, error);
            return true;
        }
    }

    /** The same, by the partition. */
    boolean waits(Object partition, long sizeBytes) {
        try {
            if (!options.covers(ImageReader.topic(partition)))
                return false;
            View view = view(partition);
            Hold hold = Decision.decide(view, options);
            logOnce(hold.isOfBroker ? hold : Hold.NONE);
            return holds.waits(partition, hold, Decision.missing(view), sizeBytes, System.currentTimeMillis(),
                nowMs());
        } catch (Throwable error) {
            failed("looking at " + partition, error);
            return true;
        }
    }

    /**
     * Empties the log of a follower that has to begin its copy anew. Its fetchers are stopped, and the next step of
     * the broker is to ask for the offset where to begin.
     */
    void beforeFetch(Object ofReplicas, Object log) {
        Object partition = null;
        try {
            partition = broker.topicPartition(log);
            Copy copy = coveredCopy(partition, log);
            if (copy == null)
                return;
            File folder = broker.folder(log);
            long end = broker.logEndOffset(log);
            boolean hasLost = checkpoints.takeLost(folder, end);
            if (copy.isCounted) {
                copies.complete(partition, folder);
                return;
            }
            boolean isEmpty = end == broker.logStartOffset(log);
            Integer before = copies.leaderOf(partition, copy, folder);
            Anew why = Decision.beginsAnew(copy.isAdding, hasLost, copy.isCounted, isEmpty, copy.leader, before);
            if (why != Anew.NO) {
                broker.empty(ofReplicas, partition);
                logAnew(why, partition, copy, before, end);
            }
            if (why != Anew.NO || isEmpty || copy.isAdding || before != null)
                copies.begin(partition, copy, folder);
        } catch (Throwable error) {
            // Not thrown on: it would keep the fetchers of every other partition of the same change from starting.
            failed("preparing the copy of " + partition, error);
        }
    }

    /** Returns the truncation that a follower carries out: of all of its log, where it has to begin its copy anew. */
    Object beforeTruncation(Object truncation, Object fetcher, Object partition) {
        try {
            Object log = broker.fetchesFromLeaders(fetcher) ? broker.logOf(replicaManager, partition) : null;
            Copy copy = log == null ? null : coveredCopy(partition, log);
            if (copy == null)
                return truncation;
            File folder = broker.folder(log);
            Anew why = Decision.truncates(broker.offsetOf(truncation), broker.highWatermark(log),
                OffsetCheckpoints.cleaned(folder), copy.isCounted);
            if (why == Anew.NO)
                return truncation;
            logAnew(why, partition, copy, copies.leaderOf(partition, copy, folder), broker.logEndOffset(log));
            copies.begin(partition, copy, folder);
            return broker.truncationOfAll();
        } catch (Throwable error) {
            // Not thrown on: the fetcher would give the partition up.
            failed("truncating " + partition, error);
            return truncation;
        }
    }

    /** Returns the copy that this broker makes of a partition; null where the gate does not cover it. */
    private Copy coveredCopy(Object partition, Object log) throws Throwable {
        if (appliedImage == null || !broker.isCompacted(log) || !options.covers(ImageReader.topic(partition)))
            return null;
        return ImageReader.copy(appliedImage, partition, brokerId);
    }

    private void logAnew(Anew why, Object partition, Copy copy, Integer before, long end) {
        begunAnew.incrementAndGet();
        Log.event("began-anew", partition, System.currentTimeMillis(), "reason=" + why.label() + " leader=" + copy.leader
            + " before=" + before + " dropped_up_to=" + end);
    }

    private void logOnce(Hold hold) {
        Hold before = brokerHold;
        if (hold == before)
            return;
        brokerHold = hold;
        if (hold == Hold.NONE)
            Log.info("released-all time_ms=" + System.currentTimeMillis()
                + ": compaction goes on, where no replica is missing");
        else
            Log.warn("held-all time_ms=" + System.currentTimeMillis() + " reason=" + hold.label()
                + ": compaction of every partition waits: " + hold.text + (hold == Hold.OLD_IMAGE
                ? " (" + getImageAgeMs() + " ms, more than " + options.maxImageAgeMs + " ms: is a controller reached, do"
                    + " clocks agree, and is metadata.max.idle.interval.ms shorter?)" : ""));
    }

    private View view(Object partition) {
        Object now = image;
        return now == null || brokerId < 0 ? null : ImageReader.view(now, partition, brokerId, imageAgeMs(now));
    }

    /**
     * The age of the image: the longer of how long ago this broker got it, by a clock that nobody sets, and how long
     * ago its last record was appended, by the clocks of both machines. The controller appends a record at least every
     * metadata.max.idle.interval.ms (NoOpRecord, KIP-835). The second is what tells where a broker is catching up:
     * then it gets images all the time, and all of them are old.
     */
    private long imageAgeMs(Object ofImage) {
        return Math.max(TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - imageSetNanos),
            System.currentTimeMillis() - ImageReader.appendTimeMs(ofImage));
    }

    private void failed(String doing, Throwable error) {
        long times = errors.incrementAndGet();
        // As many lines as digits: a failure that repeats for each partition must not fill the disk.
        if (Long.bitCount(times) == 1)
            Log.error("failure " + times + " while " + doing, error);
    }

    @Override
    public int getHeldPartitions() {
        return (int) list().stream().filter(one -> !one.isGivenUp()).count();
    }

    @Override
    public int getGivenUpPartitions() {
        return (int) list().stream().filter(HeldPartition::isGivenUp).count();
    }

    @Override
    public long getLongestHeldMs() {
        return list().stream().mapToLong(HeldPartition::getHeldMs).max().orElse(0);
    }

    @Override
    public long getGrownBytes() {
        return list().stream().mapToLong(HeldPartition::getGrownBytes).sum();
    }

    @Override
    public long getImageAgeMs() {
        Object now = image;
        return now == null ? -1 : imageAgeMs(now);
    }

    @Override
    public long getCopiesBegunAnew() {
        return begunAnew.get();
    }

    @Override
    public long getErrors() {
        return errors.get();
    }

    @Override
    public HeldPartition[] getHeld() {
        return list().toArray(new HeldPartition[0]);
    }

    private List<HeldPartition> list() {
        return holds.list(nowMs());
    }

    private static long nowMs() {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
    }
}
