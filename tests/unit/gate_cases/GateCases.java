package compaction.gate;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;

/** Applies the gate's rules to cases, one a line of stdin, and prints an answer for each. Which is right, pytest says. */
public final class GateCases {
    private static final Uuid TOPIC = new Uuid(1, 2);
    private static final TopicPartition PARTITION = new TopicPartition("orders", 0);
    private static final int BROKER = 2;

    public static void main(String[] arguments) throws Throwable {
        BufferedReader cases = new BufferedReader(new InputStreamReader(System.in));
        for (String line = cases.readLine(); line != null; line = cases.readLine()) {
            String[] words = line.split(" ");
            System.out.println(answer(words[0], words));
        }
    }

    private static String answer(String rule, String[] words) throws Throwable {
        try {
            switch (rule) {
                case "covers":
                    return String.valueOf(Options.parse(words[1]).covers(words[2]));
                case "decides":
                    return decides(words);
                case "anew":
                    return Decision.beginsAnew(
                        words[1].equals("adding"), words[3].equals("lost"), words[2].equals("counted"),
                        words[3].equals("empty"), Integer.parseInt(words[4]),
                        words[5].equals("-") ? null : Integer.valueOf(words[5])).label();
                case "truncates":
                    return Decision.truncates(Long.parseLong(words[1]), Long.parseLong(words[2]),
                        Long.parseLong(words[3]), words[4].equals("counted")).label();
                case "holds":
                    return holds(words);
                case "gives-up":
                    return givesUp(words);
                case "gate":
                    return gate(words);
                default:
                    throw new IllegalStateException(rule);
            }
        } catch (IllegalArgumentException error) {
            return "error: " + error.getMessage();
        }
    }

    /** decides OPTIONS name=value…: what a gate says about a partition that an image shows so. */
    private static String decides(String[] words) throws Throwable {
        Map<String, String> given = named(words, 2);
        FakeBroker broker = new FakeBroker(given);
        Gate gate = new Gate(Options.parse(words[1].equals("-") ? "" : words[1]), broker);
        if (!given.containsKey("no-image")) {
            MetadataImage image = image(given);
            gate.onApply(BROKER, image);
            gate.onImage(image);
        }
        boolean waits = gate.waits(broker);
        HeldPartition[] held = gate.getHeld();
        return waits + (held.length == 0 ? "" : " " + held[0].getReason() + " " + held[0].getMissingReplicas());
    }

    /** gives-up MS ISR…: looks at the first ISR, and at the last one, after the time; the others come in between. */
    private static String givesUp(String[] words) throws Throwable {
        Gate gate = new Gate(Options.parse("give-up-after-ms=" + words[1]), new FakeBroker(new HashMap<>()));
        List<String> answers = new ArrayList<>();
        for (int i = 2; i < words.length; i++) {
            MetadataImage image = image(named(new String[] {"isr=" + words[i]}, 0));
            gate.onApply(BROKER, image);
            gate.onImage(image);
            if (i == 2 || i == words.length - 1)
                answers.add(String.valueOf(gate.waits(PARTITION, Holds.UNKNOWN_SIZE)));
            if (i == 2)
                Thread.sleep(2 * Long.parseLong(words[1]));
        }
        return String.join(" ", answers);
    }

    /** holds GIVE_UP_MS NOW:MISSING:SIZE[:TIME]…: for each look, whether the partition waits, then what JMX shows. */
    private static String holds(String[] words) {
        Holds holds = new Holds(Long.parseLong(words[1]));
        List<String> answers = new ArrayList<>();
        long nowMs = 0;
        for (int i = 2; i < words.length; i++) {
            String[] look = words[i].split(":");
            nowMs = Long.parseLong(look[0]);
            List<Integer> missing = numbers(look[1]);
            Decision.Hold hold = missing.isEmpty() ? Decision.Hold.NONE : Decision.Hold.NOT_IN_SYNC;
            long timeMs = look.length > 3 ? Long.parseLong(look[3]) : nowMs;
            answers.add(String.valueOf(holds.waits(PARTITION, hold, missing, Long.parseLong(look[2]), timeMs, nowMs)));
        }
        for (HeldPartition one : holds.list(nowMs))
            answers.add(one.getTopicPartition() + " " + one.getHeldMs() + " ms " + one.getGrownBytes() + " bytes "
                + one.getMissingReplicas() + (one.isGivenUp() ? " given up" : ""));
        return String.join(", ", answers);
    }

    /**
     * gate name=value…/name=value…: each step a new leader epoch unless it says same-epoch, with the log's end; whether
     * the log was emptied. At a restart, the high watermark checkpoint may be given; how often it was kept, and what it was
     * then; another directory that is damaged; a file of the folder's that cannot be understood; and segments=BEGIN-END,… with what synced=OFFSET and cleaned=OFFSET say. A step truncate=OFFSET with hw=OFFSET and cleaned=OFFSET is a truncation: where to.
     */
    private static String gate(String[] words) throws Throwable {
        Gate gate = null;
        List<String> answers = new ArrayList<>();
        File folder = new File(Files.createTempDirectory("gate").toFile(), PARTITION.toString());
        folder.mkdir();
        for (int i = 1; i < words.length; i++) {
            Map<String, String> given = named(words[i].split("/"), 0);
            FakeBroker broker = new FakeBroker(given, folder);
            // A folder instead of a file cannot be read.
            if (given.containsKey("damaged"))
                new File(folder.getParentFile(), "damaged/" + OffsetCheckpoints.HIGH_WATERMARKS).mkdirs();
            if (given.containsKey("torn"))
                Files.write(new File(folder, FirstCopies.FILE).toPath(), new byte[0]);
            if (gate == null || given.containsKey("restart")) {
                writeOffset(folder, OffsetCheckpoints.HIGH_WATERMARKS, given.getOrDefault("hw", "0"));
                writeOffset(folder, OffsetCheckpoints.SYNCED, given.getOrDefault("synced", "0"));
                writeOffset(folder, OffsetCheckpoints.CLEANED, given.getOrDefault("cleaned", "0"));
                writeSegments(folder, given.getOrDefault("segments", ""));
                gate = new Gate(Options.parse(given.containsKey("kept") ? "" : "max-unsynced-ms=0"), broker);
                for (int times = 0; times < Integer.parseInt(given.getOrDefault("kept", "0")); times++) {
                    OffsetCheckpoints.keep(folder.getParentFile());
                    writeOffset(folder, OffsetCheckpoints.HIGH_WATERMARKS, given.getOrDefault("then", "0"));
                }
                gate.onStart(broker);
            }
            FakeBroker.current = broker;
            gate.onApply(BROKER, image(given));
            if (given.containsKey("truncate")) {
                writeOffset(folder, OffsetCheckpoints.CLEANED, given.getOrDefault("cleaned", "0"));
                answers.add(String.valueOf(gate.beforeTruncation(Long.valueOf(given.get("truncate")), broker, PARTITION)));
                continue;
            }
            if (given.containsKey("same-epoch")) {
                answers.add("-");
                continue;
            }
            gate.beforeFetch(broker, broker);
            answers.add(broker.isEmptied ? "emptied" : "kept");
        }
        return String.join(" ", answers) + (gate.getErrors() > 0 ? " errors" : "");
    }

    /** Writes a file of offsets with this partition's, as the broker does. */
    private static void writeOffset(File folder, String name, String offset) throws IOException {
        String content = "0\n2\nothers 0 7\n" + PARTITION.topic() + " " + PARTITION.partition() + " " + offset + "\n";
        Files.write(new File(folder.getParentFile(), name).toPath(), content.getBytes(StandardCharsets.UTF_8));
    }

    /** Writes a batch to each segment, from where it begins to where it ends; none where that is the same. */
    private static void writeSegments(File folder, String segments) throws IOException {
        for (String segment : segments.isEmpty() ? new String[0] : segments.split(",")) {
            String[] ends = segment.split("-");
            long begin = Long.parseLong(ends[0]), end = Long.parseLong(ends[1]);
            ByteBuffer batch = ByteBuffer.allocate(end > begin ? 61 : 0);
            if (end > begin)
                batch.putLong(0, begin).putInt(8, 49).put(16, (byte) 2).putInt(23, (int) (end - begin - 1));
            byte[] torn = new byte[ends.length > 2 ? Integer.parseInt(ends[2]) : 0];
            Path log = new File(folder, String.format("%020d.log", begin)).toPath();
            Files.write(log, batch.array());
            Files.write(log, torn, StandardOpenOption.APPEND);
        }
    }

    private static Map<String, String> named(String[] words, int from) {
        Map<String, String> given = new HashMap<>();
        for (int i = from; i < words.length; i++) {
            String[] pair = words[i].split("=");
            given.put(pair[0], pair.length > 1 ? pair[1] : "");
        }
        return given;
    }

    private static MetadataImage image(Map<String, String> given) throws ReflectiveOperationException {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        if (!given.containsKey("unregistered"))
            delta.replay(new RegisterBrokerRecord().setBrokerId(BROKER).setFenced(given.containsKey("fenced")));
        delta.replay(new TopicRecord().setName(given.getOrDefault("topic", "orders")).setTopicId(TOPIC));
        delta.replay(new PartitionRecord()
            .setTopicId(TOPIC)
            .setPartitionId(0)
            .setReplicas(numbers(given.getOrDefault("replicas", "1,3,2")))
            .setIsr(numbers(given.getOrDefault("isr", "1,3")))
            .setAddingReplicas(numbers(given.getOrDefault("adding", "")))
            .setEligibleLeaderReplicas(given.containsKey("elr") ? numbers(given.get("elr")) : null)
            .setLeader(Integer.parseInt(given.getOrDefault("leader", "1"))));
        long ageMs = Long.parseLong(given.getOrDefault("age", "0"));
        // 4.0 added a fourth argument.
        Constructor<?> made = MetadataProvenance.class.getConstructors()[0];
        Object[] all = {10L, 1, System.currentTimeMillis() - ageMs, true};
        return delta.apply((MetadataProvenance) made.newInstance(Arrays.copyOf(all, made.getParameterCount())));
    }

    private static List<Integer> numbers(String text) {
        List<Integer> numbers = new ArrayList<>();
        for (String number : text.split(","))
            if (!number.isEmpty() && !number.equals("-"))
                numbers.add(Integer.valueOf(number));
        return numbers;
    }

    /** A broker with one log, which is the broker itself. */
    private static final class FakeBroker implements BrokerCalls {
        static FakeBroker current;
        private final File folder;
        private final long end;
        private final long highWatermark;
        private final boolean isCompacted;
        private final boolean fails;
        boolean isEmptied;

        FakeBroker(Map<String, String> given) {
            this(given, null);
        }

        FakeBroker(Map<String, String> given, File folder) {
            this.folder = folder;
            highWatermark = Long.parseLong(given.getOrDefault("hw", "0"));
            end = Long.parseLong(given.getOrDefault("end", "0"));
            isCompacted = !given.containsKey("delete");
            fails = given.containsKey("fails");
        }

        @Override
        public Object topicPartition(Object log) {
            return PARTITION;
        }

        @Override
        public File folder(Object log) {
            return ((FakeBroker) log).folder;
        }

        @Override
        public long highWatermark(Object log) {
            return ((FakeBroker) log).highWatermark;
        }

        @Override
        public List<File> logDirectories(Object replicaManager) {
            return Arrays.asList(new File(folder.getParentFile(), "damaged"), folder.getParentFile());
        }

        @Override
        public Object logOf(Object replicaManager, Object partition) {
            return current;
        }

        @Override
        public boolean fetchesFromLeaders(Object fetcher) {
            return true;
        }

        @Override
        public long offsetOf(Object truncation) {
            return (Long) truncation;
        }

        @Override
        public Object truncationOfAll() {
            return 0L;
        }

        @Override
        public long size(Object log) {
            if (fails)
                throw new IllegalStateException("the log is closed");
            return end;
        }

        @Override
        public long logStartOffset(Object log) {
            return 0;
        }

        @Override
        public long logEndOffset(Object log) {
            return ((FakeBroker) log).end;
        }

        @Override
        public boolean isCompacted(Object log) {
            return ((FakeBroker) log).isCompacted;
        }

        @Override
        public void empty(Object replicaManager, Object partition) {
            current.isEmptied = true;
        }
    }
}
