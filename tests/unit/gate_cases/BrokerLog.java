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
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.record.internal.MemoryRecords;
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
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** A broker's own log of one partition, with its cleaner and metadata cache, and no broker around them (4.4). */
final class BrokerLog {
    static final TopicPartition PARTITION = new TopicPartition("orders", 0);
    private static final Uuid TOPIC = new Uuid(1, 2);
    private static final int BROKER = 2;
    private static final int NEVER_MS = 1 << 30;

    final UnifiedLog log;
    final LogCleanerManager manager;
    final Cleaner cleaner;
    /** Runs before the cleaner asks whether it may go on. */
    Runnable onCheck = () -> { };
    private final KRaftMetadataCache cache = new KRaftMetadataCache(BROKER, () -> KRaftVersion.KRAFT_VERSION_1);

    BrokerLog(File folder, Map<String, String> settings, int mapBytes) throws Exception {
        File partition = new File(folder, PARTITION.toString());
        partition.mkdirs();
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        log = UnifiedLog.create(partition, new LogConfig(settings), 0, 0, new KafkaScheduler(1), new BrokerTopicStats(),
            Time.SYSTEM, NEVER_MS, new ProducerStateManagerConfig(NEVER_MS, false), NEVER_MS, failures, true,
            Optional.of(TOPIC));
        ConcurrentMap<TopicPartition, UnifiedLog> logs = new ConcurrentHashMap<>(Map.of(PARTITION, log));
        manager = new LogCleanerManager(List.of(folder), logs, failures);
        Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "test", "bytes", Time.SYSTEM);
        cleaner = new Cleaner(0, new SkimpyOffsetMap(mapBytes), 1 << 16, 1 << 16, 0.9, throttler, Time.SYSTEM, one -> {
            onCheck.run();
            manager.checkCleaningAborted(one);
        });
        Hooks.gate.onApply(BROKER, image("1,3"));
    }

    /** Gives the broker an image with these members of the ISR; replicas are 1, 3 and 2. */
    void isr(String members) {
        cache.setImage(image(members));
    }

    /** Appends a batch that is replicated at once. */
    void append(MemoryRecords records, AppendOrigin origin) throws Exception {
        log.appendAsLeader(records, 0, origin);
        log.updateHighWatermark(log.logEndOffset());
    }

    static SimpleRecord record(String key, String value) {
        byte[] bytes = value == null ? null : value.getBytes(StandardCharsets.UTF_8);
        return new SimpleRecord(System.currentTimeMillis(), key.getBytes(StandardCharsets.UTF_8), bytes);
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
