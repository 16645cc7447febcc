package compaction.gate;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The broker's own log. Lines about a partition are {@code compaction-gate: EVENT topic=… partition=… time_ms=… …}, those
 * about all of them {@code compaction-gate: EVENT-all time_ms=… …: text}.
 */
final class Log {
    private static final Logger LOG = LoggerFactory.getLogger("compaction.gate");

    private Log() {
    }

    static void info(String text) {
        LOG.info("compaction-gate: " + text);
    }

    static void warn(String text) {
        LOG.warn("compaction-gate: " + text);
    }

    static void error(String text, Throwable error) {
        LOG.error("compaction-gate: " + text, error);
    }

    static void event(String event, Object topicPartition, long timeMs, String more) {
        info(event + " topic=" + ImageReader.topic(topicPartition) + " partition=" + ImageReader.partition(topicPartition)
            + " time_ms=" + timeMs + " " + more);
    }
}
