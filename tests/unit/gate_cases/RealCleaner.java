package compaction.gate;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.PreCleanStats;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * A broker's own log, cleaner and metadata cache with the agent, without a broker: what is cleaned, and what retention may
 * delete, while the image shows one ISR or another. Prints what is left in the log after each step.
 */
public final class RealCleaner {
    private static final TopicPartition PARTITION = new TopicPartition("orders", 0);
    private static final Uuid TOPIC = new Uuid(1, 2);
    private static final int BROKER = 2;
    private static final int NEVER_MS = 1 << 30;

    private final UnifiedLog log;
    private final LogCleanerManager manager;
    private final Cleaner cleaner;
    private final KRaftMetadataCache cache = new KRaftMetadataCache(BROKER, () -> KRaftVersion.KRAFT_VERSION_1);
    private int fillers;

    private RealCleaner(File folder) throws Exception {
        File partition = new File(folder, PARTITION.toString());
        partition.mkdirs();
        LogConfig config = new LogConfig(Map.of(
            "cleanup.policy", "compact,delete", "delete.retention.ms", "0", "min.cleanable.dirty.ratio", "0.0"));
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        log = UnifiedLog.create(partition, config, 0, 0, new KafkaScheduler(1), new BrokerTopicStats(), Time.SYSTEM,
            NEVER_MS, new ProducerStateManagerConfig(NEVER_MS, false), NEVER_MS, failures, true, Optional.of(TOPIC));
        ConcurrentMap<TopicPartition, UnifiedLog> logs = new ConcurrentHashMap<>(Map.of(PARTITION, log));
        manager = new LogCleanerManager(List.of(folder), logs, failures);
        Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "test", "bytes", Time.SYSTEM);
        cleaner = new Cleaner(0, new SkimpyOffsetMap(1 << 20), 1 << 16, 1 << 16, 0.9, throttler, Time.SYSTEM, any -> { });
        Hooks.gate.onApply(BROKER, image("1,3"));
    }

    public static void main(String[] arguments) throws Exception {
        RealCleaner real = new RealCleaner(new File(System.getProperty("folder")));
        real.write();
        real.show("written");
        real.cache.setImage(image("1,3"));
        real.passes();
        real.show("held");
        System.out.println("deletable while held: " + real.isDeletable());
        real.cache.setImage(image("1,3,2"));
        real.passes();
        real.show("released");
        System.out.println("errors: " + Hooks.gate.getErrors());
        Runtime.getRuntime().halt(0);
    }

    private void write() throws Exception {
        plain("a", "1");
        plain("a", "2");
        plain("b", "1");
        plain("b", null);
        transaction("c", "1", 0);
        transaction("d", "1", 1);
        plain("c", "2");
    }

    /** Three passes, each with something new to clean: data, horizons, and what these allow. */
    private void passes() throws Exception {
        for (int pass = 0; pass < 3; pass++) {
            plain("filler-" + fillers++, "");
            Optional<LogToClean> chosen = manager.grabFilthiestCompactedLog(Time.SYSTEM, new PreCleanStats());
            if (chosen.isPresent()) {
                long end = cleaner.clean(chosen.get()).getKey();
                manager.doneCleaning(PARTITION, log.parentDirFile(), end);
            }
            Thread.sleep(2);  // so that the clock is past the horizons of this pass
        }
    }

    private boolean isDeletable() {
        boolean found = manager.deletableLogs().containsKey(PARTITION);
        if (found)
            manager.doneDeleting(List.of(PARTITION));
        return found;
    }

    private void plain(String key, String value) throws Exception {
        append(MemoryRecords.withRecords(Compression.NONE, record(key, value)), AppendOrigin.CLIENT);
    }

    private void transaction(String key, String value, int sequence) throws Exception {
        append(MemoryRecords.withTransactionalRecords(Compression.NONE, 7, (short) 0, sequence, record(key, value)),
            AppendOrigin.CLIENT);
        append(MemoryRecords.withEndTransactionMarker(7, (short) 0, new EndTransactionMarker(ControlRecordType.COMMIT, 0)),
            AppendOrigin.REPLICATION);
    }

    private void append(MemoryRecords records, AppendOrigin origin) throws Exception {
        log.appendAsLeader(records, 0, origin);
        log.updateHighWatermark(log.logEndOffset());
        log.roll();
    }

    private static SimpleRecord record(String key, String value) {
        byte[] bytes = value == null ? null : value.getBytes(StandardCharsets.UTF_8);
        return new SimpleRecord(System.currentTimeMillis(), key.getBytes(StandardCharsets.UTF_8), bytes);
    }

    private void show(String step) {
        List<String> left = new ArrayList<>();
        for (LogSegment segment : log.logSegments())
            for (RecordBatch batch : segment.log().batches())
                for (Record record : batch)
                    left.add(batch.isControlBatch() ? "COMMIT@" + record.offset() : text(record));
        left.removeIf(one -> one.startsWith("filler"));
        System.out.println(step + ": " + String.join(" ", left));
    }

    private static String text(Record record) {
        return StandardCharsets.UTF_8.decode(record.key()) + "="
            + (record.hasValue() ? StandardCharsets.UTF_8.decode(record.value()).toString() : "null");
    }

    private static MetadataImage image(String isr) {
        List<Integer> members = new ArrayList<>();
        for (String one : isr.split(","))
            members.add(Integer.valueOf(one));
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        delta.replay(new RegisterBrokerRecord().setBrokerId(BROKER).setFenced(false));
        delta.replay(new TopicRecord().setName(PARTITION.topic()).setTopicId(TOPIC));
        delta.replay(new PartitionRecord().setTopicId(TOPIC).setPartitionId(0).setReplicas(List.of(1, 3, 2))
            .setIsr(members).setLeader(1));
        return delta.apply(new MetadataProvenance(10, 1, System.currentTimeMillis(), true));
    }
}
