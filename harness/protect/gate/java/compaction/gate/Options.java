package compaction.gate;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;

/**
 * What the agent's argument asks for: {@code name=value} pairs with commas between them.
 *
 * <pre>
 * topics=PATTERN[:PATTERN…]   compacted topics that the gate covers; * and ? as in a shell; all without it
 * except=PATTERN[:PATTERN…]   topics among these that it does not cover
 * max-image-age-ms=N          the oldest metadata image by which compaction may go on (30000)
 * give-up-after-ms=N          a replica that is out of the ISR for so long is not waited for any more (0: never)
 * max-unsynced-ms=N           records replicated longer ago are expected on disk; a broker that lacks them when it starts
 *                             copies anew (60000; 0: all that its high watermark checkpoint has)
 * hold=all | markers          what waits: all compaction of the partition, or tombstones and markers only (all)
 * </pre>
 */
final class Options {
    static final long DEFAULT_MAX_IMAGE_AGE_MS = 30_000L;
    static final long DEFAULT_MAX_UNSYNCED_MS = 60_000L;

    final List<Pattern> topics = new ArrayList<>();
    final List<Pattern> except = new ArrayList<>();
    long maxImageAgeMs = DEFAULT_MAX_IMAGE_AGE_MS;
    long giveUpAfterMs;
    long maxUnsyncedMs = DEFAULT_MAX_UNSYNCED_MS;
    boolean holdsMarkersOnly;

    private Options() {
    }

    /** Raises IllegalArgumentException for an unknown name or a value that does not fit. */
    static Options parse(String argument) {
        Options options = new Options();
        if (argument == null || argument.isEmpty())
            return options;
        for (String pair : argument.split(",")) {
            int equals = pair.indexOf('=');
            if (equals <= 0 || equals == pair.length() - 1)
                throw new IllegalArgumentException("'" + pair + "' is no option: write name=value");
            options.set(pair.substring(0, equals), pair.substring(equals + 1));
        }
        return options;
    }

    boolean covers(String topic) {
        return (topics.isEmpty() || matches(topics, topic)) && !matches(except, topic);
    }

    private void set(String name, String value) {
        switch (name) {
            case "topics":
                addPatterns(topics, name, value);
                break;
            case "except":
                addPatterns(except, name, value);
                break;
            case "max-image-age-ms":
                maxImageAgeMs = number(name, value, 1);
                break;
            case "give-up-after-ms":
                giveUpAfterMs = number(name, value, 0);
                break;
            case "max-unsynced-ms":
                maxUnsyncedMs = number(name, value, 0);
                break;
            case "hold":
                if (!value.equals("all") && !value.equals("markers"))
                    throw new IllegalArgumentException("hold=" + value + ": give all or markers");
                holdsMarkersOnly = value.equals("markers");
                break;
            default:
                throw new IllegalArgumentException("there is no option '" + name + "'; options are topics, except,"
                    + " max-image-age-ms, give-up-after-ms, max-unsynced-ms and hold");
        }
    }

    private static long number(String name, String value, long least) {
        try {
            long number = Long.parseLong(value);
            if (number >= least)
                return number;
        } catch (NumberFormatException ignored) {
            // the message below says it
        }
        throw new IllegalArgumentException(name + "=" + value + ": give a number of milliseconds, at least " + least);
    }

    private static void addPatterns(List<Pattern> patterns, String name, String value) {
        for (String glob : value.split(":")) {
            if (!glob.matches("[a-zA-Z0-9._*?-]+"))
                throw new IllegalArgumentException(name + "=" + value + ": '" + glob + "' is no pattern of topic names");
            patterns.add(Pattern.compile(glob.replace(".", "\\.").replace("*", ".*").replace("?", ".")));
        }
    }

    private static boolean matches(List<Pattern> patterns, String topic) {
        for (Pattern pattern : patterns)
            if (pattern.matcher(topic).matches())
                return true;
        return false;
    }
}
