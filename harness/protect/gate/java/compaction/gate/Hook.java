package compaction.gate;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * One place in the broker where the gate is called: a row of the table below. Class names differ between versions;
 * of each list a broker has one.
 */
final class Hook {
    static final List<String> LOG_TO_CLEAN = Arrays.asList(
        "org.apache.kafka.storage.internals.log.LogToClean", "kafka.log.LogToClean");
    static final List<String> REPLICA_MANAGER = Collections.singletonList("kafka.server.ReplicaManager");
    static final List<String> ABORTED = Arrays.asList(
        "org.apache.kafka.storage.internals.log.LogCleaningAbortedException",
        "kafka.common.LogCleaningAbortedException");
    static final List<String> REPLICA_FETCHER = Collections.singletonList("kafka.server.ReplicaFetcherThread");
    static final List<String> TRUNCATION = Collections.singletonList("kafka.server.OffsetTruncationState");
    private static final List<String> FETCHER = Collections.singletonList("kafka.server.AbstractFetcherThread");
    private static final List<String> CLEANER_MANAGER = Arrays.asList(
        "org.apache.kafka.storage.internals.log.LogCleanerManager", "kafka.log.LogCleanerManager");
    private static final List<String> CLEANABLE_OFFSETS = Arrays.asList(
        "org.apache.kafka.storage.internals.log.LogCleanerManager", "kafka.log.LogCleanerManager$");
    /** 4.0 has both: there the class in Scala is what logs are made of, and the other one is a part of it. */
    private static final List<String> LOG = Arrays.asList(
        "kafka.log.UnifiedLog", "org.apache.kafka.storage.internals.log.UnifiedLog");
    private static final List<String> CLEANER = Arrays.asList(
        "org.apache.kafka.storage.internals.log.Cleaner", "kafka.log.Cleaner");
    private static final List<String> CLEANER_FILTER = Arrays.asList(
        "org.apache.kafka.storage.internals.log.Cleaner$1", "kafka.log.Cleaner$$anon$1");
    private static final List<String> METADATA_CACHE = Arrays.asList(
        "org.apache.kafka.metadata.KRaftMetadataCache", "kafka.server.metadata.KRaftMetadataCache");

    static final String ANY_METHOD = "*";
    /** Instead of a call: before the method returns an object, which the hook is given first, and may replace. */
    static final String AT_RETURN = "areturn";

    final List<String> classes;
    final String method;
    /** How many arguments the method has. */
    final int arguments;
    /** The call after which the hook is called, with its result; null: where the method begins. */
    final String afterCall;
    final int calls;
    final String callee;
    final String calleeDescriptor;
    /** Which of the method's values the hook is given: 0 is the first argument, -1 the object itself. */
    final int[] given;
    final boolean isOptional;

    private Hook(List<String> classes, String method, int arguments, String afterCall, int calls, String callee,
                 String calleeDescriptor, boolean isOptional, int... given) {
        this.classes = classes;
        this.method = method;
        this.arguments = arguments;
        this.afterCall = afterCall;
        this.calls = calls;
        this.callee = callee;
        this.calleeDescriptor = calleeDescriptor;
        this.isOptional = isOptional;
        this.given = given;
    }

    private static Hook atStart(List<String> classes, String method, int arguments, String callee, int... given) {
        return new Hook(classes, method, arguments, null, 1, callee, "(" + objects(given.length) + ")V", false, given);
    }

    private static String objects(int count) {
        return String.join("", Collections.nCopies(count, "Ljava/lang/Object;"));
    }

    /** The hooks that the options ask for. */
    static List<Hook> table(Options options) {
        List<Hook> hooks = new ArrayList<>();
        hooks.add(new Hook(CLEANABLE_OFFSETS, "cleanableOffsets", 3, "lastStableOffset()J", 1, "cleanableUpTo",
            "(JLjava/lang/Object;)J", false, 0));
        hooks.add(atStart(CLEANER_MANAGER, "checkCleaningAborted", 1, "goingOn", 0));
        hooks.add(atStart(LOG, "replaceSegments", 2, "swapping", -1));
        hooks.add(atStart(METADATA_CACHE, "setImage", 1, "image", 0));
        hooks.add(atStart(REPLICA_MANAGER, "applyDelta", 2, "applying", -1, 1));
        hooks.add(atStart(REPLICA_MANAGER, "initialFetchOffset", 1, "beforeFetch", -1, 0));
        hooks.add(new Hook(FETCHER, "getOffsetTruncationState", 2, AT_RETURN, 1, "truncation",
            "(Ljava/lang/Object;Ljava/lang/Object;Ljava/lang/Object;)Ljava/lang/Object;", false, -1, 0));
        // Only 3.9 has it, and only brokers with ZooKeeper start it.
        hooks.add(new Hook(Collections.singletonList("kafka.server.KafkaServer"), "startup", 0, null, 1,
            "refuseZooKeeper", "()V", true));
        if (options.holdsMarkersOnly) {
            hooks.add(atStart(CLEANER, "doClean", 2, "cleaning", 0));
            for (List<String> classes : Arrays.asList(CLEANER, CLEANER_FILTER))
                hooks.add(new Hook(classes, ANY_METHOD, 0, "deleteHorizonMs()Ljava/util/OptionalLong;", 2, "horizon",
                    "(Ljava/util/OptionalLong;)Ljava/util/OptionalLong;", false));
        }
        return hooks;
    }

    /**
     * Loads the one of these classes that is there, without initializing it. Raises IllegalStateException where two are:
     * which of them the broker uses is not known then.
     */
    static Class<?> find(ClassLoader loader, List<String> names) throws ClassNotFoundException {
        Class<?> found = null;
        for (String name : names) {
            try {
                Class<?> one = Class.forName(name, false, loader);
                if (found != null && names == LOG)
                    continue;
                if (found != null)
                    throw new IllegalStateException("both " + found.getName() + " and " + name + " are there");
                found = one;
            } catch (ClassNotFoundException next) {
                // older or newer versions have another
            }
        }
        if (found == null)
            throw new ClassNotFoundException("none of " + names);
        return found;
    }

    @Override
    public String toString() {
        String name = classes.get(0);
        return name.substring(name.lastIndexOf('.') + 1) + "." + method + " -> " + callee;
    }
}
