package compaction.gate;

import java.lang.instrument.Instrumentation;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import javax.management.ObjectName;

/**
 * Installs the gate before the broker's main class is started, or fails: the JVM then ends, and no broker ever serves
 * with a gate that does nothing. Each hooked class is loaded here, so that every hook is known to be in place.
 */
public final class Agent {
    static final String MBEAN = "compaction.gate:type=Gate";

    private Agent() {
    }

    /** Raises IllegalStateException with everything that does not fit; the JVM prints it and ends with exit code 1. */
    public static void premain(String argument, Instrumentation instrumentation) throws Exception {
        Options options;
        try {
            options = Options.parse(argument);
        } catch (IllegalArgumentException error) {
            throw new IllegalStateException("compaction-gate: " + error.getMessage());
        }
        List<String> problems = install(options, instrumentation, ClassLoader.getSystemClassLoader());
        if (!problems.isEmpty())
            throw new IllegalStateException("compaction-gate: this broker cannot be protected, and does not start: "
                + String.join("; ", problems));
        ManagementFactory.getPlatformMBeanServer().registerMBean(Hooks.gate, new ObjectName(MBEAN));
        Log.info("installed " + (argument == null ? "" : argument));
    }

    private static List<String> install(Options options, Instrumentation instrumentation, ClassLoader loader)
            throws Exception {
        List<String> problems = new ArrayList<>();
        for (String one : References.missing(loader))
            problems.add("there is no " + one);
        List<Hook> hooks = Hook.table(options);
        Weaver weaver = new Weaver(hooks);
        instrumentation.addTransformer(weaver, true);
        for (Hook hook : hooks) {
            try {
                Class<?> hooked = Hook.find(loader, hook.classes);
                if (weaver.inserted(hook) == 0)
                    instrumentation.retransformClasses(hooked);  // another agent had loaded it
                if (weaver.inserted(hook) != hook.calls)
                    problems.add(hook + " was inserted " + weaver.inserted(hook) + " times instead of " + hook.calls
                        + " (" + hooked.getName() + ")");
            } catch (ClassNotFoundException absent) {
                if (!hook.isOptional)
                    problems.add(hook + ": there is " + absent.getMessage());
            } catch (IllegalStateException ambiguous) {
                problems.add(hook + ": " + ambiguous.getMessage());
            }
        }
        if (weaver.failure() != null)
            problems.add("a class cannot be changed: " + weaver.failure());
        try {
            Hooks.broker = new BrokerApi(loader);
            Hooks.gate = new Gate(options, Hooks.broker);
        } catch (ReflectiveOperationException | LinkageError | IllegalStateException absent) {
            problems.add(absent.toString());
        }
        return problems;
    }
}
