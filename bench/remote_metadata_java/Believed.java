package org.apache.kafka.server.log.remote.metadata.storage;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;

/**
 * Feeds a broker's view of remote segments with events, and prints that view: one line of events, such as "A+ A. B+",
 * gives one line of answers. Segments A, B and C have 100 offsets each. "+": the copy has started, ".": it has finished,
 * "-": the deletion has started, "!": it has finished.
 */
public class Believed {
    static final TopicIdPartition PARTITION = new TopicIdPartition(Uuid.randomUuid(), new TopicPartition("orders", 0));
    static final String STATES = "+.-!";

    public static void main(String[] lines) throws Exception {
        for (String line : lines) {
            System.out.println(believed(line.split(" ")));
        }
    }

    static String believed(String[] events) throws Exception {
        RemotePartitionMetadataStore store = new RemotePartitionMetadataStore();
        Map<Character, RemoteLogSegmentId> ids = Map.of(
            'A', RemoteLogSegmentId.generateNew(PARTITION), 'B', RemoteLogSegmentId.generateNew(PARTITION),
            'C', RemoteLogSegmentId.generateNew(PARTITION));
        store.maybeLoadPartition(PARTITION);
        String error = "";
        for (String event : events) {
            RemoteLogSegmentId id = ids.get(event.charAt(0));
            long base = 100L * (event.charAt(0) - 'A');
            RemoteLogSegmentState state = RemoteLogSegmentState.forId((byte) STATES.indexOf(event.charAt(1)));
            try {
                if (state == RemoteLogSegmentState.COPY_SEGMENT_STARTED) {
                    store.handleRemoteLogSegmentMetadata(new RemoteLogSegmentMetadata(
                        id, base, base + 99, 0, 1, 0, 1000, Map.of(0, base)));
                } else {
                    store.handleRemoteLogSegmentMetadataUpdate(
                        new RemoteLogSegmentMetadataUpdate(id, 0, Optional.empty(), state, 1));
                }
            } catch (RuntimeException raised) {
                error = " " + raised.getClass().getSimpleName();
            }
        }
        store.markInitialized(PARTITION);
        List<String> readable = new ArrayList<>();
        for (long offset : new long[] {50, 150, 250}) {
            store.remoteLogSegmentMetadata(PARTITION, offset, 0).ifPresent(s -> readable.add(s.startOffset() + "-" + s.endOffset()));
        }
        int listed = 0;
        for (Iterator<?> all = store.listRemoteLogSegments(PARTITION); all.hasNext(); all.next()) {
            listed++;
        }
        return "readable " + readable + ", highest offset " + store.highestLogOffset(PARTITION, 0).orElse(-1L)
            + ", listed " + listed + error;
    }
}
