package compaction.gate;

import java.io.File;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.PreCleanStats;

/**
 * A log whose keys are updated again and again while a replica is away, then the replica is back: what the log takes on
 * disk, and what the cleaner reads and writes. Prints one line of numbers for each of both spans.
 */
public final class HeldLog {
    private static final int BATCH = 1000;
    private static final Map<String, String> SETTINGS = Map.of(
        "cleanup.policy", "compact", "segment.bytes", String.valueOf(16 << 20), "delete.retention.ms", "86400000");

    private final BrokerLog broker;
    private long passes;
    private long readBytes;
    private long writtenBytes;
    private double cleanS;
    private long mostBytes;

    private HeldLog(File folder, int mapBytes) throws Exception {
        broker = new BrokerLog(folder, SETTINGS, mapBytes);
    }

    public static void main(String[] arguments) throws Exception {
        int keys = Integer.getInteger("keys");
        HeldLog held = new HeldLog(new File(System.getProperty("folder")), Integer.getInteger("map"));
        held.broker.isr("1,3");
        String value = "v".repeat(Integer.getInteger("value"));
        for (int round = 0; round < Integer.getInteger("rounds"); round++) {
            for (int key = 0; key < keys; key += BATCH)
                held.append(key, Math.min(keys, key + BATCH), value);
            held.broker.isr("1,3");  // as the controller's NoOpRecord would
            held.clean();
        }
        held.show("away");
        held.broker.log.roll();
        held.broker.isr("1,3,2");
        held.clean();
        held.show("back");
        Runtime.getRuntime().halt(0);
    }

    private void append(int from, int to, String value) throws Exception {
        SimpleRecord[] records = new SimpleRecord[to - from];
        for (int key = from; key < to; key++)
            records[key - from] = BrokerLog.record("key-" + key, value);
        broker.append(MemoryRecords.withRecords(Compression.NONE, records), AppendOrigin.CLIENT);
    }

    /** Cleans as a cleaner thread does: until nothing is dirty enough. */
    private void clean() throws Exception {
        mostBytes = Math.max(mostBytes, broker.log.size());
        for (Optional<LogToClean> chosen = grab(); chosen.isPresent(); chosen = grab()) {
            Map.Entry<Long, CleanerStats> done = broker.cleaner.clean(chosen.get());
            broker.manager.doneCleaning(BrokerLog.PARTITION, broker.log.parentDirFile(), done.getKey());
            passes++;
            readBytes += done.getValue().bytesRead();
            writtenBytes += done.getValue().bytesWritten();
            cleanS += done.getValue().elapsedSecs();
        }
    }

    private Optional<LogToClean> grab() {
        return broker.manager.grabFilthiestCompactedLog(Time.SYSTEM, new PreCleanStats());
    }

    private void show(String span) {
        System.out.println(String.join("\t", span, String.valueOf(broker.log.size()), String.valueOf(mostBytes),
            String.valueOf(passes), String.valueOf(readBytes), String.valueOf(writtenBytes), String.valueOf(cleanS)));
        mostBytes = passes = readBytes = writtenBytes = 0;
        cleanS = 0;
    }
}
