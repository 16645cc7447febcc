package org.apache.kafka.storage.internals.log;

import java.io.File;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Optional;

import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Logs of Kafka from 4.1 on, whose cleaner is written in Java. */
public final class Kafka4 implements Passes.Opener {
    @Override
    public Passes.Log open(File folder, LogConfig config, boolean clean, ProducerStateManagerConfig producers,
            long logStart) throws Exception {
        UnifiedLog log = UnifiedLog.create(folder, config, logStart, 0, Passes.SCHEDULER, new BrokerTopicStats(false),
            Passes.TIME, Integer.MAX_VALUE, producers, Integer.MAX_VALUE, new LogDirFailureChannel(1), clean, Optional.empty());
        return new Passes.Log() {
            @Override
            public void roll(long atOffset) throws Exception {
                log.roll(Optional.of(atOffset));
            }

            @Override
            public void append(ByteBuffer batch, int leaderEpoch) throws Exception {
                Passes.append(log, batch, leaderEpoch);
            }

            @Override
            public void highWatermark(long offset) throws Exception {
                log.updateHighWatermark(offset);
            }

            @Override
            public long clean(long firstDirty, long nowMs, OffsetMap map, Throttler throttler, Runnable check)
                    throws Exception {
                LogCleanerManager.OffsetsToClean offsets =
                    LogCleanerManager.cleanableOffsets(log, Optional.of(firstDirty), nowMs);
                LogToClean dirty = new LogToClean(log, offsets.firstDirtyOffset(), offsets.firstUncleanableDirtyOffset(), false);
                if (dirty.totalBytes() == 0 || dirty.cleanableBytes() == 0) {
                    return firstDirty;
                }
                Cleaner cleaner = new Cleaner(0, map, Passes.IO_BYTES, Passes.MAX_IO_BYTES, 0.9, throttler, Passes.TIME,
                    partition -> check.run());
                return cleaner.doClean(dirty, nowMs).getKey();
            }

            @Override
            public RuntimeException aborted() {
                return new LogCleaningAbortedException();
            }

            @Override
            public void expireProducers(long nowMs) {
                log.removeExpiredProducers(nowMs);
            }

            @Override
            public long lastStableOffset() {
                return log.lastStableOffset();
            }

            @Override
            public long logStart() {
                return log.logStartOffset();
            }

            @Override
            public long logEnd() {
                return log.logEndOffset();
            }

            @Override
            public long recoveryPoint() {
                return log.recoveryPoint();
            }

            @Override
            public void truncate(long offset) {
                log.truncateTo(offset);
            }

            @Override
            public void deleteBefore(long offset) throws Exception {
                log.maybeIncrementLogStartOffset(offset, LogStartOffsetIncrementReason.ClientRecordDeletion);
                log.deleteOldSegments();
            }

            @Override
            public String endOffset(int epoch) {
                return log.endOffsetForEpoch(epoch).map(end -> end.epoch() + ":" + end.offset()).orElse("none");
            }

            @Override
            public void configure(LogConfig config) {
                log.updateConfig(config);
            }

            @Override
            public List<Long> segments() {
                return log.logSegments().stream().map(LogSegment::baseOffset).toList();
            }

            @Override
            public void close() {
                log.close();
            }
        };
    }
}
