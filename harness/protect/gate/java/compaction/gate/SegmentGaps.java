package compaction.gate;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;

/**
 * Offsets that no segment of a log has, between the end of one and the beginning of the next. A segment is synced in the
 * background, after the log has rolled (UnifiedLog.roll), and the next one may be on disk before it. A broker that starts
 * after a power failure finds nothing wrong with a segment that ends between two batches (LogLoader.recoverLog), goes on
 * behind the next one, and never asks for what is missing.
 *
 * <p>A leader's log that was never cleaned has no such gaps: a segment begins where the one before it ends. Cleaned
 * segments have them, and are synced before they replace others (Cleaner.cleanSegments). A follower that copies cleaned
 * segments may roll at such a gap (UnifiedLog.maybeRoll), and after a kill its copy begins again without need.
 */
final class SegmentGaps {
    private static final String SUFFIX = ".log";
    /** Of a batch: its first offset, the bytes that follow, and how far its last offset is from the first (KIP-98). */
    private static final int LENGTH_AT = 8, LENGTH_ENDS = 12, DELTA_AT = 23, READ = 27;

    private SegmentGaps() {
    }

    /**
     * Returns whether there is one in the log of this folder. A file whose name is no offset is of no segment.
     *
     * @param synced up to where the log is on disk
     * @param cleaned up to where it was cleaned
     */
    static boolean isOneIn(File folder, long synced, long cleaned) throws IOException {
        String[] names = folder.list((in, name) -> name.matches("\\d{20}\\.log"));
        long[] begins = names == null ? new long[0] : Arrays.stream(names)
            .mapToLong(name -> Long.parseLong(name.substring(0, name.length() - SUFFIX.length()))).sorted().toArray();
        for (int at = 0; at + 1 < begins.length; at++) {
            long next = begins[at + 1];
            if (next > synced && begins[at] >= cleaned
                && end(new File(folder, String.format("%020d" + SUFFIX, begins[at])), begins[at]) < next)
                return true;
        }
        return false;
    }

    /** Returns the offset after the last whole batch of a segment; where it begins if it has none. */
    private static long end(File segment, long begins) throws IOException {
        long end = begins;
        try (FileChannel file = FileChannel.open(segment.toPath(), StandardOpenOption.READ)) {
            ByteBuffer head = ByteBuffer.allocate(READ);
            for (long at = 0; at + READ <= file.size(); ) {
                head.clear();
                while (head.hasRemaining() && file.read(head, at + head.position()) >= 0) {
                    // One read may give less.
                }
                int length = head.getInt(LENGTH_AT);
                if (head.hasRemaining() || length <= READ - LENGTH_ENDS || at + LENGTH_ENDS + length > file.size())
                    break;
                end = head.getLong(0) + head.getInt(DELTA_AT) + 1;
                at += LENGTH_ENDS + length;
            }
        }
        return end;
    }
}
