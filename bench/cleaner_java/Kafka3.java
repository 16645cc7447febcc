package org.apache.kafka.storage.internals.log;

import java.io.File;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;

import kafka.log.Cleaner;
import kafka.log.LogCleanerManager;
import kafka.log.LogToClean;
import kafka.log.OffsetsToClean;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Option;
import scala.runtime.BoxedUnit;

/** Logs of Kafka 3.9, whose cleaner is written in Scala. */
public final class Kafka3 implements Passes.Opener {
    @Override
    public Passes.Log open(File folder, LogConfig config, boolean clean, ProducerStateManagerConfig producers,
            long logStart) {
        UnifiedLog log = UnifiedLog.apply(folder, config, logStart, 0, Passes.SCHEDULER, new BrokerTopicStats(false),
            Passes.TIME, Integer.MAX_VALUE, producers, Integer.MAX_VALUE, new LogDirFailureChannel(1), clean, Option.empty(), true,
            new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        return new Passes.Log() {
            @Override
            public void roll(long atOffset) {
                log.roll(Option.apply(atOffset));
            }

            @Override
            public void append(ByteBuffer batch, int leaderEpoch) throws Exception {
                Passes.append(log, batch, leaderEpoch);
            }

            @Override
            public void highWatermark(long offset) {
                log.updateHighWatermark(offset);
            }

            @Override
            public long clean(long firstDirty, long nowMs, OffsetMap map, Throttler throttler, Runnable check) {
                OffsetsToClean offsets = LogCleanerManager.cleanableOffsets(log, Option.apply(firstDirty), nowMs);
                LogToClean dirty = new LogToClean(log.topicPartition(), log, offsets.firstDirtyOffset(),
                    offsets.firstUncleanableDirtyOffset(), false);
                if (dirty.totalBytes() == 0 || dirty.cleanableBytes() == 0) {
                    return firstDirty;
                }
                Cleaner cleaner = new Cleaner(0, map, Passes.IO_BYTES, Passes.MAX_IO_BYTES, 0.9, throttler, Passes.TIME,
                    partition -> {
                        check.run();
                        return BoxedUnit.UNIT;
                    });
                return (Long) cleaner.doClean(dirty, nowMs)._1();
            }

            @Override
            public RuntimeException aborted() {
                return new kafka.common.LogCleaningAbortedException();
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
            public void deleteBefore(long offset) {
                log.maybeIncrementLogStartOffset(offset, LogStartOffsetIncrementReason.ClientRecordDeletion);
                log.deleteOldSegments();
            }

            @Override
            public String endOffset(int epoch) {
                Option<OffsetAndEpoch> end = log.endOffsetForEpoch(epoch);
                return end.isEmpty() ? "none" : end.get().leaderEpoch() + ":" + end.get().offset();
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
