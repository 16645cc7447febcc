package org.apache.kafka.storage.internals.log;

/** The state of the error that {@code Plant} plants. */
public final class Planted {
    private static Object splitLog;
    private static boolean isDropping;

    private Planted() { }

    public static void split(Object log, Object segment) {
        splitLog = log;
    }

    /** A pass begins. */
    public static void begin(Object cleanable) throws ReflectiveOperationException {
        isDropping = splitLog != null && cleanable.getClass().getMethod("log").invoke(cleanable) == splitLog;
    }

    /** Return whether markers are taken for unneeded ones. */
    public static boolean drops() {
        return isDropping;
    }
}
