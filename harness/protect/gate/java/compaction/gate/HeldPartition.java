package compaction.gate;

import java.beans.ConstructorProperties;

/** One row of {@link GateMXBean#getHeld()}. */
public final class HeldPartition {
    private final String topicPartition;
    private final String reason;
    private final String missingReplicas;
    private final long heldMs;
    private final long grownBytes;
    private final boolean givenUp;

    @ConstructorProperties({"topicPartition", "reason", "missingReplicas", "heldMs", "grownBytes", "givenUp"})
    public HeldPartition(String topicPartition, String reason, String missingReplicas, long heldMs, long grownBytes,
                         boolean givenUp) {
        this.topicPartition = topicPartition;
        this.reason = reason;
        this.missingReplicas = missingReplicas;
        this.heldMs = heldMs;
        this.grownBytes = grownBytes;
        this.givenUp = givenUp;
    }

    public String getTopicPartition() {
        return topicPartition;
    }

    public String getReason() {
        return reason;
    }

    public String getMissingReplicas() {
        return missingReplicas;
    }

    public long getHeldMs() {
        return heldMs;
    }

    public long getGrownBytes() {
        return grownBytes;
    }

    public boolean isGivenUp() {
        return givenUp;
    }
}
