package compaction.gate;

/**
 * Run with the agent and a broker's class path: has the JVM verify every class that was changed, and lists the hooks.
 * Agent has checked all else by then. The exit code is 0 where everything fits.
 */
public final class Verify {
    private Verify() {
    }

    public static void main(String[] arguments) throws Exception {
        ClassLoader loader = ClassLoader.getSystemClassLoader();
        for (Hook hook : Hook.table(Hooks.gate.options())) {
            try {
                Class<?> hooked = Hook.find(loader, hook.classes);
                Class.forName(hooked.getName(), true, loader);
                System.out.println("hook\t" + hooked.getName() + "." + hook.method + "\t" + hook.callee);
            } catch (ClassNotFoundException optional) {
                continue;
            }
        }
    }
}
