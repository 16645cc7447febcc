package org.apache.kafka.mutants;

/** Prints a line to the broker's log when a mutation point executes for the first time in a process. */
public final class Reached {
    private static final boolean[] REACHED = new boolean[4096];

    private Reached() {
    }

    public static void mark(int point) {
        if (!REACHED[point]) {
            REACHED[point] = true;
            System.out.println("MUTATION POINT " + point + " EXECUTED");
        }
    }
}
