package compaction.gate;

import java.io.File;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * How far the replicas of a log directory had come, by the files of offsets that the broker keeps in it and syncs
 * (CheckpointFile): a version, how many lines follow, and the lines, each with topic, partition and offset.
 *
 * <p>Records are left to the operating system, which writes them within half a minute or so. So every broker that loses its
 * power loses the end of its logs, and that does no harm: nothing is removed before delete.retention.ms is over. What does
 * is a loss of older records. {@link #keep} therefore keeps two copies of the high watermarks, a newer one and an older one,
 * and {@link #readAtStart} goes by the older one.
 */
final class OffsetCheckpoints {
    /** The high watermark of each replica (ReplicaManager); written every replica.high.watermark.checkpoint.interval.ms. */
    static final String HIGH_WATERMARKS = "replication-offset-checkpoint";
    /** Up to where each log was cleaned (LogCleanerManager); written after each pass. */
    static final String CLEANED = "cleaner-offset-checkpoint";
    /** Up to where each log is on disk (LogManager): a start after a crash recovers what follows. */
    static final String SYNCED = "recovery-point-offset-checkpoint";
    /** The copies. */
    static final String NEWER = "compaction-gate.newer-offsets", OLDER = "compaction-gate.older-offsets";

    private static final int FIELDS = 3;

    private final Map<String, Long> atStart = new ConcurrentHashMap<>();
    private final Set<String> withGaps = ConcurrentHashMap.newKeySet();

    /**
     * Reads what a directory had when the broker started: before it loads replicas, and writes the files anew.
     *
     * @param isFresh by the last high watermarks, and not by those of some time before
     */
    void readAtStart(File directory, boolean isFresh) throws IOException {
        for (String name : new String[] {isFresh ? HIGH_WATERMARKS : OLDER, CLEANED})
            for (Map.Entry<String, Long> one : read(new File(directory, name)).entrySet())
                atStart.merge(new File(directory, one.getKey()).getPath(), one.getValue(), Math::max);
        Map<String, Long> synced = read(new File(directory, SYNCED)), cleaned = read(new File(directory, CLEANED));
        File[] folders = directory.listFiles(File::isDirectory);
        for (File folder : folders == null ? new File[0] : folders) {
            String name = folder.getName();
            if (SegmentGaps.isOneIn(folder, synced.getOrDefault(name, 0L), cleaned.getOrDefault(name, 0L)))
                withGaps.add(folder.getPath());
        }
    }

    /**
     * Returns whether the replica in this folder, whose log ends there now, lacks what it had before the broker started, and
     * forgets that: what happens to the log later is another matter, and the topic may be made anew.
     */
    boolean takeLost(File folder, long end) {
        Long offset = atStart.remove(folder.getPath());
        boolean hasGap = withGaps.remove(folder.getPath());
        return hasGap || offset != null && end < offset;
    }

    /** Makes the newer copy of a directory the older one, and copies the high watermarks anew. */
    static void keep(File directory) throws IOException {
        Path source = new File(directory, HIGH_WATERMARKS).toPath();
        Path newer = new File(directory, NEWER).toPath();
        if (!Files.exists(source))
            return;
        if (Files.exists(newer))
            Files.move(newer, new File(directory, OLDER).toPath(), StandardCopyOption.ATOMIC_MOVE);
        Path draft = new File(directory, NEWER + ".tmp").toPath();
        Files.copy(source, draft, StandardCopyOption.REPLACE_EXISTING);
        try (FileChannel file = FileChannel.open(draft, StandardOpenOption.WRITE)) {
            file.force(true);
        }
        Files.move(draft, newer, StandardCopyOption.ATOMIC_MOVE);
    }

    /** Returns up to where the log in this folder was cleaned; 0 where that is not known. */
    static long cleaned(File folder) throws IOException {
        return read(new File(folder.getParentFile(), CLEANED)).getOrDefault(folder.getName(), 0L);
    }

    /** Returns the offsets of a file by the names of partitions' folders; none where there is no such file. */
    private static Map<String, Long> read(File file) throws IOException {
        Map<String, Long> offsets = new HashMap<>();
        if (!file.exists())
            return offsets;
        List<String> lines = Files.readAllLines(file.toPath(), StandardCharsets.UTF_8);
        for (String line : lines) {
            String[] fields = line.trim().split("\\s+");
            if (fields.length == FIELDS)
                offsets.put(fields[0] + "-" + fields[1], Long.valueOf(fields[2]));
        }
        return offsets;
    }
}
