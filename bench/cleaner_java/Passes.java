package org.apache.kafka.storage.internals.log;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ScheduledFuture;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.utils.Throttler;

/**
 * Kafka's log and cleaner without a broker: takes one command a line on standard input, and answers with one line.
 *
 * <pre>
 * open FOLDER CLEAN RETENTION_MS EXPIRATION_MS FIRST_DIRTY HIGH_WATERMARK NOW_MS LOG_START INDEX_BYTES
 *                                                open a partition's folder; CLEAN: whether a broker shut down in order
 * append ROLL HIGH_WATERMARK HEX                 append a batch as a follower does; ROLL: begin a segment first
 * truncate OFFSET                                remove all from an offset on
 * delete OFFSET                                  delete all before an offset
 * epochs NUMBER                                  answers with the epoch and the end offset for each epoch up to a number
 * pass NOW_MS MAP_BYTES CHECKS SEGMENT_BYTES INDEX_BYTES
 *                                                one pass; it is aborted at check CHECKS, where that is not negative
 * close
 * </pre>
 *
 * Answers are "ok", then the last stable offset, the log end, the first dirty offset, the recovery point and the log
 * start, then the base offsets of all segments; or "aborted" and the same; or "failed" with the error. The time of a pass is its
 * argument: nothing waits.
 */
public final class Passes {
    /** A log of one version of Kafka. */
    public interface Log {
        void roll(long atOffset) throws Exception;

        void append(ByteBuffer batch, int leaderEpoch) throws Exception;

        void highWatermark(long offset) throws Exception;

        /** Run a pass, and return the first offset that it did not clean. */
        long clean(long firstDirty, long nowMs, OffsetMap map, Throttler throttler, Runnable check) throws Exception;

        /** Return the exception that aborts a pass. */
        RuntimeException aborted();

        void expireProducers(long nowMs);

        long lastStableOffset();

        long logStart();

        long logEnd();

        long recoveryPoint();

        void truncate(long offset);

        void deleteBefore(long offset) throws Exception;

        /** Return the epoch and the end offset that a leader answers for a leader epoch, or "none". */
        String endOffset(int epoch);

        void configure(LogConfig config);

        List<Long> segments();

        void close();
    }

    /** Opens logs of one version of Kafka. */
    public interface Opener {
        Log open(File folder, LogConfig config, boolean clean, ProducerStateManagerConfig producers, long logStart)
            throws Exception;
    }

    /** Writes leader epochs at once, and does nothing later: deleted segments stay as files with a suffix. */
    public static final Scheduler SCHEDULER = new Scheduler() {
        public void startup() { }

        public void shutdown() { }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (name.startsWith("leader-epoch-cache-flush")) {
                task.run();
            }
            return (ScheduledFuture<?>) Proxy.newProxyInstance(Passes.class.getClassLoader(),
                new Class<?>[] {ScheduledFuture.class},
                (self, method, arguments) -> method.getReturnType() == boolean.class ? true : null);
        }

        public void resizeThreadPool(int size) { }
    };
    public static final int IO_BYTES = 512, MAX_IO_BYTES = 64 << 20;
    private static final int EPOCH_AT = 12;
    private static final String LARGE_SEGMENT_BYTES = Integer.toString(1 << 30);
    private static final String LARGE_INDEX_BYTES = "4096", INTERVAL_BYTES = "4096";
    private static final String INTERNAL_SEGMENT_BYTES = "internal.segment.bytes";

    private static Log log;
    private static long nowMs;
    private static String retentionMs;
    private static long firstDirty;

    /** The time of the case; it passes only between commands. */
    public static final Time TIME = (Time) Proxy.newProxyInstance(Passes.class.getClassLoader(), new Class<?>[] {Time.class},
        (self, method, arguments) -> method.getName().equals("milliseconds") ? nowMs : method.invoke(Time.SYSTEM, arguments));

    private Passes() { }

    public static void main(String[] args) throws Exception {
        Opener opener = (Opener) Class.forName(args[0]).getDeclaredConstructor().newInstance();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String answer;
            try {
                answer = perform(opener, line.split(" "));
            } catch (Throwable error) {
                Throwable cause = error instanceof InvocationTargetException ? error.getCause() : error;
                answer = "failed " + cause.toString().replace('\n', ' ');
            }
            System.out.println(answer);
        }
    }

    private static String perform(Opener opener, String[] command) throws Exception {
        boolean aborted = false;
        switch (command[0]) {
            case "open" -> {
                nowMs = Long.parseLong(command[7]);
                retentionMs = command[3];
                log = opener.open(new File(command[1]), config(LARGE_SEGMENT_BYTES, command[9], INTERVAL_BYTES), command[2].equals("1"),
                    new ProducerStateManagerConfig(Integer.parseInt(command[4]), false), Long.parseLong(command[8]));
                firstDirty = Long.parseLong(command[5]);
                log.highWatermark(Long.parseLong(command[6]));
            }
            case "append" -> {
                ByteBuffer batch = ByteBuffer.wrap(HexFormat.of().parseHex(command[3]));
                if (command[1].equals("1")) {
                    log.roll(batch.getLong(0));
                }
                log.append(batch, batch.getInt(EPOCH_AT));
                log.highWatermark(Long.parseLong(command[2]));
            }
            case "truncate" -> log.truncate(Long.parseLong(command[1]));
            case "delete" -> log.deleteBefore(Long.parseLong(command[1]));
            case "epochs" -> {
                return IntStream.rangeClosed(0, Integer.parseInt(command[1])).mapToObj(log::endOffset)
                    .collect(Collectors.joining(" ", "ok ", ""));
            }
            case "pass" -> {
                nowMs = Long.parseLong(command[1]);
                // A pass fails where it writes more entries than there is room for, so that those with little room write few.
                String interval = command[5].equals(LARGE_INDEX_BYTES) ? INTERVAL_BYTES : LARGE_SEGMENT_BYTES;
                log.configure(config(command[4], command[5], interval));
                aborted = !clean(Integer.parseInt(command[2]), Integer.parseInt(command[3]));
                log.configure(config(LARGE_SEGMENT_BYTES, LARGE_INDEX_BYTES, INTERVAL_BYTES));
            }
            case "close" -> {
                log.close();
                return "ok";
            }
            default -> throw new IOException("no command " + command[0]);
        }
        return (aborted ? "aborted " : "ok ") + log.lastStableOffset() + " " + log.logEnd() + " " + firstDirty + " "
            + log.recoveryPoint() + " " + log.logStart() + " " + log.segments().stream().map(String::valueOf).collect(Collectors.joining(" "));
    }

    private static LogConfig config(String segmentBytes, String indexBytes, String intervalBytes) {
        String name = LogConfig.configNames().contains(INTERNAL_SEGMENT_BYTES) ? INTERNAL_SEGMENT_BYTES : "segment.bytes";
        return new LogConfig(Map.of("cleanup.policy", "compact", "segment.ms", Long.toString(Long.MAX_VALUE),
            "segment.index.bytes", indexBytes, "index.interval.bytes", intervalBytes, name, segmentBytes, "delete.retention.ms", retentionMs,
            "max.message.bytes", Integer.toString(MAX_IO_BYTES)));
    }

    /** Return false if the pass was aborted. */
    private static boolean clean(int mapBytes, int checks) throws Exception {
        int[] left = {checks};
        Throttler unlimited = new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner", "bytes", Time.SYSTEM);
        log.expireProducers(nowMs);
        try {
            firstDirty = log.clean(firstDirty, nowMs, new SkimpyOffsetMap(mapBytes), unlimited, () -> {
                if (left[0]-- == 0) {
                    throw log.aborted();
                }
            });
            return true;
        } catch (RuntimeException error) {
            if (error.getClass() == log.aborted().getClass()) {
                return false;
            }
            throw error;
        }
    }

    /** Call ``appendAsFollower`` of a log: the package of MemoryRecords is another one from 4.3 on. */
    public static void append(Object log, ByteBuffer batch, int leaderEpoch) throws Exception {
        for (Method method : log.getClass().getMethods()) {
            if (method.getName().equals("appendAsFollower")) {
                Class<?> records = method.getParameterTypes()[0];
                method.invoke(log, records.getMethod("readableRecords", ByteBuffer.class).invoke(null, batch), leaderEpoch);
                return;
            }
        }
        throw new NoSuchMethodException("appendAsFollower");
    }
}
