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

    /** Ends the JVM with exit code 1 where something does not fit: an exception here would abort it with a core dump. */
    public static void premain(String argument, Instrumentation instrumentation) {
        try {
            Options options = Options.parse(argument);
            List<String> problems = install(options, instrumentation, ClassLoader.getSystemClassLoader());
            if (!problems.isEmpty())
                throw new IllegalStateException(
                    "this broker cannot be protected, and does not start: " + String.join("; ", problems));
            ManagementFactory.getPlatformMBeanServer().registerMBean(Hooks.gate, new ObjectName(MBEAN));
            Log.info("installed " + (argument == null ? "" : argument));
        } catch (IllegalArgumentException | IllegalStateException said) {
            end(said.getMessage());
        } catch (Throwable unexpected) {
            unexpected.printStackTrace();
            end("the gate cannot be installed: " + unexpected);
        }
    }

    private static void end(String reason) {
        System.err.println("compaction-gate: " + reason);
        System.exit(1);
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
