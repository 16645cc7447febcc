package compaction.gate;

import java.io.File;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import javax.management.openmbean.CompositeData;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogCleaningAbortedException;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.PreCleanStats;

/**
 * What a broker's own cleaner does with the agent, and what retention may delete, while the image shows one ISR or another.
 * Prints what is left in the log after each step.
 */
public final class RealCleaner {
    private static final Map<String, String> SETTINGS = Map.of(
        "cleanup.policy", "compact,delete", "delete.retention.ms", "0", "min.cleanable.dirty.ratio", "0.0");

    private final BrokerLog broker;
    private int fillers;
    private int checks;

    private RealCleaner(File folder) throws Exception {
        broker = new BrokerLog(folder, SETTINGS, 1 << 20);
    }

    public static void main(String[] arguments) throws Exception {
        RealCleaner real = new RealCleaner(new File(System.getProperty("folder")));
        real.write();
        real.show("written");
        real.broker.isr("1,3");
        real.passes();
        real.show("held");
        System.out.println("deletable while held: " + real.isDeletable());
        showBeans();
        real.broker.isr("1,3,2");
        real.passes();
        real.show("released");
        real.passesThatAReplicaLeaves();
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
            Optional<LogToClean> chosen = broker.manager.grabFilthiestCompactedLog(Time.SYSTEM, new PreCleanStats());
            if (chosen.isPresent()) {
                long end = broker.cleaner.clean(chosen.get()).getKey();
                broker.manager.doneCleaning(BrokerLog.PARTITION, broker.log.parentDirFile(), end);
            }
            Thread.sleep(2);  // so that the clock is past the horizons of this pass
        }
    }

    /** A replica leaves before the nth time that a cleaner asks whether it may go on, and before it swaps segments. */
    private void passesThatAReplicaLeaves() throws Exception {
        List<String> ended = new ArrayList<>();
        for (int after = 0; after < 3; after++) {
            broker.isr("1,3,2");
            plain("e", String.valueOf(after));
            LogToClean chosen = broker.manager.grabFilthiestCompactedLog(Time.SYSTEM, new PreCleanStats()).get();
            checks = after;
            broker.onCheck = this::leave;
            ended.add(outcome(() -> broker.cleaner.clean(chosen)));
            broker.onCheck = () -> { };
            broker.manager.doneCleaning(BrokerLog.PARTITION, broker.log.parentDirFile(), chosen.firstDirtyOffset());
        }
        ended.add("swap " + outcome(() -> broker.log.replaceSegments(List.of(), List.of())));
        System.out.println("passes: " + String.join(", ", ended));
    }

    private void leave() {
        if (checks-- == 0)
            broker.isr("1,3");
    }

    private interface Step {
        void run() throws Exception;
    }

    private static String outcome(Step step) throws Exception {
        try {
            step.run();
            return "complete";
        } catch (LogCleaningAbortedException aborted) {
            return "aborted";
        }
    }

    private boolean isDeletable() {
        boolean found = broker.manager.deletableLogs().containsKey(BrokerLog.PARTITION);
        if (found)
            broker.manager.doneDeleting(List.of(BrokerLog.PARTITION));
        return found;
    }

    private void plain(String key, String value) throws Exception {
        append(MemoryRecords.withRecords(Compression.NONE, BrokerLog.record(key, value)), AppendOrigin.CLIENT);
    }

    private void transaction(String key, String value, int sequence) throws Exception {
        append(MemoryRecords.withTransactionalRecords(
            Compression.NONE, 7, (short) 0, sequence, BrokerLog.record(key, value)), AppendOrigin.CLIENT);
        append(MemoryRecords.withEndTransactionMarker(
            7, (short) 0, new EndTransactionMarker(ControlRecordType.COMMIT, 0)), AppendOrigin.REPLICATION);
    }

    private void append(MemoryRecords records, AppendOrigin origin) throws Exception {
        broker.append(records, origin);
        broker.log.roll();
    }

    private static void showBeans() throws Exception {
        MBeanServer beans = ManagementFactory.getPlatformMBeanServer();
        ObjectName gate = new ObjectName("compaction.gate:type=Gate");
        StringBuilder shown = new StringBuilder("jmx: " + beans.getAttribute(gate, "HeldPartitions"));
        for (CompositeData one : (CompositeData[]) beans.getAttribute(gate, "Held"))
            shown.append(" ").append(one.get("topicPartition")).append(one.get("missingReplicas"));
        long ageMs = (long) beans.getAttribute(gate, "ImageAgeMs");
        System.out.println(shown + (ageMs >= 0 && ageMs < 30_000 ? " current" : " old"));
    }

    private void show(String step) {
        List<String> left = new ArrayList<>();
        for (LogSegment segment : broker.log.logSegments())
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
}
