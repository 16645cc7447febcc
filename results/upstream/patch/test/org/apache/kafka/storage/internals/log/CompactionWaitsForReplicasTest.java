package org.apache.kafka.storage.internals.log;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.common.TransactionVersion;
import org.apache.kafka.server.util.MockTime;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class CompactionWaitsForReplicasTest {
    private static final TopicPartition PARTITION = new TopicPartition("orders", 0);
    private static final int RETENTION_MS = 1000;
    private static final int NEVER_MS = 1 << 30;
    private static final long PRODUCER = 7;

    private final MockTime time = new MockTime();
    private boolean allReplicasInSync = true;
    private Runnable onCheck = () -> { };
    private UnifiedLog log;
    private LogCleanerManager manager;
    private Cleaner cleaner;
    @TempDir
    Path folder;

    @BeforeEach
    void setUp() throws Exception {
        File partition = folder.resolve(PARTITION.toString()).toFile();
        assertTrue(partition.mkdirs());
        LogConfig config = new LogConfig(Map.of(
            "cleanup.policy", "compact,delete",
            "delete.retention.ms", String.valueOf(RETENTION_MS),
            "min.cleanable.dirty.ratio", "0.0"));
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        log = UnifiedLog.create(partition, config, 0, 0, time.scheduler, new BrokerTopicStats(), time, NEVER_MS,
            new ProducerStateManagerConfig(NEVER_MS, false), NEVER_MS, failures, true, Optional.of(Uuid.randomUuid()));
        ConcurrentMap<TopicPartition, UnifiedLog> logs = new ConcurrentHashMap<>(Map.of(PARTITION, log));
        manager = new LogCleanerManager(List.of(folder.toFile()), logs, failures,
            (tp, maxImageAgeMs) -> allReplicasInSync && maxImageAgeMs == RETENTION_MS);
        Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "test", "bytes", Time.SYSTEM);
        cleaner = new Cleaner(0, new SkimpyOffsetMap(1 << 20), 1 << 16, 1 << 16, 0.9, throttler, time, tp -> {
            onCheck.run();
            manager.checkCleaningAborted(tp);
        });
    }

    @AfterEach
    void tearDown() {
        manager.removeMetrics();
        log.close();
    }

    @Test
    void aTombstoneIsKeptWhileAReplicaIsBehind() throws Exception {
        append("a", "1");
        append("a", null);
        allReplicasInSync = false;
        passes(4);
        assertTrue(contents().contains("a=null"));
        allReplicasInSync = true;
        passes(4);
        assertFalse(contents().contains("a=null"));
    }

    @Test
    void aMarkerIsKeptWhileAReplicaIsBehind() throws Exception {
        commit(0, "a", "1");
        append("a", "2");
        // The last batch of a producer stays until the producer expires: it must not be the marker.
        commit(1, "b", "1");
        allReplicasInSync = false;
        passes(4);
        assertTrue(contents().contains("marker@1"));
        allReplicasInSync = true;
        passes(4);
        assertFalse(contents().contains("marker@1"));
    }

    @Test
    void retentionGoesOnWhileAReplicaIsBehind() throws Exception {
        append("a", "1");
        allReplicasInSync = false;
        assertEquals(Map.of(PARTITION, log), manager.deletableLogs());
    }

    @Test
    void aPassThatIsUnderWayEndsBeforeItsSegmentIsSwappedIn() throws Exception {
        append("a", "1");
        append("a", null);
        append("a", "2");
        log.roll();
        List<String> before = contents();
        int checks = checksOfAPass();
        assertTrue(checks >= 2, "checked " + checks + " times");
        for (int last = 1; last <= checks; last++) {
            int leavesAt = last;
            int[] count = {0};
            onCheck = () -> allReplicasInSync = ++count[0] < leavesAt;
            LogToClean toClean = new LogToClean(log, 0, log.activeSegment().baseOffset(), false);
            assertThrows(LogCleaningAbortedException.class, () -> cleaner.clean(toClean));
            assertEquals(before, contents());
            assertEquals(last, count[0]);
        }
    }

    /** Counts the checks of a pass up to the one before the swap, the first after something was written to the new segment. */
    private int checksOfAPass() throws Exception {
        int[] count = {0};
        onCheck = () -> {
            count[0]++;
            if (new File(log.dir(), "00000000000000000000.log.cleaned").length() > 0)
                throw new LogCleaningAbortedException();
        };
        LogToClean toClean = new LogToClean(log, 0, log.activeSegment().baseOffset(), false);
        assertThrows(LogCleaningAbortedException.class, () -> cleaner.clean(toClean));
        return count[0];
    }

    private void append(String key, String value) throws Exception {
        log.appendAsLeader(MemoryRecords.withRecords(Compression.NONE,
            new SimpleRecord(time.milliseconds(), bytes(key), value == null ? null : bytes(value))), 0);
    }

    /** Writes a transaction with one record: two offsets. */
    private void commit(int sequence, String key, String value) throws Exception {
        log.appendAsLeader(MemoryRecords.withTransactionalRecords(Compression.NONE, PRODUCER, (short) 0, sequence,
            new SimpleRecord(time.milliseconds(), bytes(key), bytes(value))), 0);
        log.appendAsLeader(MemoryRecords.withEndTransactionMarker(time.milliseconds(), PRODUCER, (short) 0,
            new EndTransactionMarker(ControlRecordType.COMMIT, 0)), 0, AppendOrigin.COORDINATOR,
            RequestLocal.noCaching(), VerificationGuard.SENTINEL, TransactionVersion.TV_1.featureLevel());
    }

    /** A cleaner looks for work that often, with one more record in a closed segment and the retention over each time. */
    private void passes(int count) throws Exception {
        for (int pass = 0; pass < count; pass++) {
            append("filler", String.valueOf(pass));
            log.roll();
            log.updateHighWatermark(log.logEndOffset());
            Optional<LogToClean> next = manager.grabFilthiestCompactedLog(time, new PreCleanStats());
            assertEquals(allReplicasInSync, next.isPresent());
            if (next.isPresent()) {
                long cleanedTo = cleaner.clean(next.get()).getKey();
                manager.doneCleaning(PARTITION, folder.toFile(), cleanedTo);
            }
            time.sleep(RETENTION_MS + 1);
        }
    }

    private List<String> contents() {
        List<String> contents = new ArrayList<>();
        for (LogSegment segment : log.logSegments())
            for (RecordBatch batch : segment.log().batches())
                for (Record record : batch)
                    contents.add(batch.isControlBatch() ? "marker@" + record.offset() : text(record));
        return contents;
    }

    private static String text(Record record) {
        String key = StandardCharsets.UTF_8.decode(record.key()).toString();
        return key + "=" + (record.hasValue() ? StandardCharsets.UTF_8.decode(record.value()) : null);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
