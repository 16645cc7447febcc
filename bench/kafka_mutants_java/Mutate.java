import java.io.IOException;
import java.io.InputStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;

import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.Handle;
import org.objectweb.asm.Label;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.Type;

/**
 * Lists the mutation points of methods, and writes classes with mutations or with probes.
 *
 * <pre>
 * java -cp ASM:JARS Mutate.java list METHODS             one line per point: id, line of the source, change, area
 * java -cp ASM:JARS Mutate.java mutate METHODS ID OUT    the class with this mutation; exit code 3: the JVM rejects it
 * java -cp ASM:JARS Mutate.java probe METHODS IDS OUT    the classes of these points, unchanged except for probes
 * </pre>
 *
 * METHODS is a file with a line "area class method" per method; the lambdas of a method belong to it. An id is
 * class.method:number:operator, where the number counts the points of this operator in the method, from 1. IDS is a
 * file with an id per line; its line number, from 0, is the number in the output of a probe.
 */
public final class Mutate implements Opcodes {
    private static final String PROBE = "org/apache/kafka/mutants/Reached";
    private static final String NEGATED = "negated", OFF_BY_ONE = "off-by-one", SKIPPED = "skipped-call",
        WRONG = "wrong-operand", STALE = "stale-value";

    /** Owners whose calls change neither what is stored nor what is served: logs, metrics, locks, preconditions. */
    private static final List<String> NO_EFFECT = List.of(
        "org/slf4j/", "com/typesafe/scalalogging/", "com/yammer/", "java/util/concurrent/locks/", "kafka/utils/Logging",
        "org/apache/kafka/common/metrics/", "org/apache/kafka/server/metrics/", "java/util/Objects",
        "org/apache/kafka/storage/internals/log/CleanerStats", "scala/runtime/");
    private static final Set<String> NO_EFFECT_NAMES = Set.of(
        "info", "debug", "warn", "error", "trace", "fatal", "record", "mark", "lock", "unlock");

    /** Methods without arguments that return another offset of the same object. */
    private static final Map<String, String> OTHER_OFFSET = Map.of(
        "baseOffset", "lastOffset", "lastOffset", "baseOffset", "firstOffset", "lastOffset",
        "highWatermark", "logEndOffset", "logEndOffset", "highWatermark", "logStartOffset", "logEndOffset");
    private static final Map<String, Set<String>> OFFSETS_OF = Map.of(
        "RecordBatch", Set.of("baseOffset", "lastOffset"), "MutableRecordBatch", Set.of("baseOffset", "lastOffset"),
        "AbortedTxn", Set.of("firstOffset", "lastOffset"),
        "UnifiedLog", Set.of("highWatermark", "logEndOffset", "logStartOffset"));

    private static final Map<Integer, Integer> NEGATION = new HashMap<>(), BOUNDARY = new HashMap<>();

    static {
        int[][] negations = {{IFEQ, IFNE}, {IFLT, IFGE}, {IFGT, IFLE}, {IF_ICMPEQ, IF_ICMPNE}, {IF_ICMPLT, IF_ICMPGE},
            {IF_ICMPGT, IF_ICMPLE}, {IF_ACMPEQ, IF_ACMPNE}, {IFNULL, IFNONNULL}};
        int[][] boundaries = {{IFLT, IFLE}, {IFGE, IFGT}, {IF_ICMPLT, IF_ICMPLE}, {IF_ICMPGE, IF_ICMPGT}};
        fill(NEGATION, negations);
        fill(BOUNDARY, boundaries);
    }

    private static void fill(Map<Integer, Integer> map, int[][] pairs) {
        for (int[] pair : pairs) {
            map.put(pair[0], pair[1]);
            map.put(pair[1], pair[0]);
        }
    }

    /** Classes and methods may be missing: the list is of another version. */
    private static final boolean IS_ANOTHER_VERSION = Boolean.getBoolean("another.version");

    private record Point(String id, int line, String change) { }

    public static void main(String[] args) throws Exception {
        Map<String, Map<String, String>> areas = readMethods(Path.of(args[1]));
        if (args[0].equals("list")) {
            for (Map.Entry<String, Map<String, String>> ofClass : areas.entrySet()) {
                for (Point point : visit(ofClass.getKey(), ofClass.getValue().keySet(), Map.of(), false, null)) {
                    String method = point.id.substring(point.id.indexOf('.') + 1, point.id.indexOf(':'));
                    String area = ofClass.getValue().get(method);
                    System.out.println(String.join("\t", point.id, "" + point.line, point.change, area));
                }
            }
        } else if (args[0].equals("mutate")) {
            write(areas, Map.of(args[2], 0), true, Path.of(args[3]));
        } else {
            List<String> ids = Files.readAllLines(Path.of(args[2]));
            Map<String, Integer> numbers = new HashMap<>();
            ids.forEach(id -> numbers.put(id, numbers.size()));
            write(areas, numbers, false, Path.of(args[3]));
        }
    }

    private static Map<String, Map<String, String>> readMethods(Path file) throws IOException {
        Map<String, Map<String, String>> areas = new LinkedHashMap<>();
        for (String line : Files.readAllLines(file)) {
            String[] parts = line.split(" ");
            areas.computeIfAbsent(parts[1], name -> new LinkedHashMap<>()).put(parts[2], parts[0]);
        }
        return areas;
    }

    private static void write(Map<String, Map<String, String>> areas, Map<String, Integer> ids, boolean mutated,
                              Path out) throws Exception {
        for (Map.Entry<String, Map<String, String>> ofClass : areas.entrySet()) {
            String name = ofClass.getKey();
            if (ids.keySet().stream().noneMatch(id -> id.startsWith(simpleName(name) + "."))) {
                continue;
            }
            byte[][] changed = new byte[1][];
            visit(name, ofClass.getValue().keySet(), ids, mutated, bytes -> changed[0] = bytes);
            if (changed[0] == null) {
                continue;
            }
            if (!isAccepted(name, changed[0])) {
                System.exit(3);
            }
            Path file = out.resolve(name.replace('.', '/') + ".class");
            Files.createDirectories(file.getParent());
            Files.write(file, changed[0]);
        }
    }

    private static String simpleName(String name) {
        return name.substring(name.lastIndexOf('.') + 1);
    }

    /** Return whether the JVM's verifier accepts a class. */
    private static boolean isAccepted(String name, byte[] bytes) throws Exception {
        List<URL> urls = new ArrayList<>();
        for (String path : System.getProperty("java.class.path").split(":")) {
            urls.add(Path.of(path).toUri().toURL());
        }
        ClassLoader loader = new URLClassLoader(urls.toArray(URL[]::new), ClassLoader.getPlatformClassLoader()) {
            @Override
            protected Class<?> findClass(String className) throws ClassNotFoundException {
                return className.equals(name) ? defineClass(name, bytes, 0, bytes.length) : super.findClass(className);
            }
        };
        try {
            Class.forName(name, true, loader);
            return true;
        } catch (VerifyError error) {
            return false;
        }
    }

    private static List<Point> visit(String name, Set<String> methods, Map<String, Integer> ids, boolean mutated,
                                     Consumer<byte[]> written) throws IOException {
        ClassReader reader;
        try (InputStream stream = ClassLoader.getSystemResourceAsStream(name.replace('.', '/') + ".class")) {
            if (stream == null && IS_ANOTHER_VERSION) {
                return List.of();
            }
            reader = new ClassReader(stream);
        }
        ClassWriter writer = new ClassWriter(ClassWriter.COMPUTE_MAXS);
        List<Point> points = new ArrayList<>();
        Map<String, Integer> counts = new HashMap<>();
        Set<String> missing = new HashSet<>(methods);
        reader.accept(new ClassVisitor(ASM9, writer) {
            @Override
            public MethodVisitor visitMethod(int access, String method, String descriptor, String signature,
                                             String[] exceptions) {
                MethodVisitor next = super.visitMethod(access, method, descriptor, signature, exceptions);
                String base = baseName(method);
                if (!methods.contains(base) || method.endsWith("$adapted") || (access & ACC_BRIDGE) != 0) {
                    return next;
                }
                missing.remove(base);
                return new Mutator(next, simpleName(name) + "." + base, access, descriptor, counts, ids, mutated, points);
            }
        }, 0);
        if (!missing.isEmpty() && !IS_ANOTHER_VERSION) {
            throw new IllegalArgumentException(name + " has no " + missing);
        }
        if (written != null) {
            written.accept(writer.toByteArray());
        }
        return points;
    }

    /** The method in which a lambda was written: javac's lambda$name$0, or Scala's $anonfun$name$1. */
    private static String baseName(String method) {
        for (String prefix : List.of("lambda$", "$anonfun$")) {
            if (method.startsWith(prefix)) {
                return method.substring(prefix.length()).replaceAll("\\$.*", "");
            }
        }
        return method.replaceAll("\\$\\d+$", "");
    }

    private static final class Mutator extends MethodVisitor {
        private final String method;
        private final Map<String, Integer> counts;
        private final Map<String, Integer> ids;
        private final boolean mutated;
        private final List<Point> points;
        private final Set<Integer> assigned = new HashSet<>();
        private int line;
        private int constant = -1;
        private Runnable call;
        private Runnable discard;
        private String callee;

        Mutator(MethodVisitor next, String method, int access, String descriptor, Map<String, Integer> counts,
                Map<String, Integer> ids, boolean mutated, List<Point> points) {
            super(ASM9, next);
            this.method = method;
            this.counts = counts;
            this.ids = ids;
            this.mutated = mutated;
            this.points = points;
            int slot = (access & ACC_STATIC) == 0 ? 1 : 0;
            for (Type type : Type.getArgumentTypes(descriptor)) {
                assigned.add(slot);
                slot += type.getSize();
            }
        }

        /** Count a point; return whether to mutate it. Emits the probe of a chosen point. */
        private boolean isChosen(String operator, String change) {
            int number = counts.merge(method + operator, 1, Integer::sum);
            String id = method + ":" + number + ":" + operator;
            points.add(new Point(id, line, change));
            Integer probe = ids.get(id);
            if (probe == null) {
                return false;
            }
            if (probe <= Short.MAX_VALUE) {
                super.visitIntInsn(SIPUSH, probe);
                super.visitMethodInsn(INVOKESTATIC, PROBE, "mark", "(I)V", false);
            }
            return mutated;
        }

        /** Emit the constant or the call that waited for the next instruction. */
        private void flush() {
            if (constant >= 0) {
                super.visitInsn(constant);
                constant = -1;
            }
            if (call != null) {
                call.run();
                call = null;
            }
        }

        private void discard(String descriptor, boolean isStatic) {
            Type[] types = Type.getArgumentTypes(descriptor);
            for (int index = types.length - 1; index >= 0; index--) {
                super.visitInsn(types[index].getSize() == 2 ? POP2 : POP);
            }
            if (!isStatic) {
                super.visitInsn(POP);
            }
        }

        @Override
        public void visitLineNumber(int number, Label start) {
            flush();
            line = number;
            super.visitLineNumber(number, start);
        }

        @Override
        public void visitJumpInsn(int opcode, Label label) {
            flush();
            int changed = opcode;
            if (NEGATION.containsKey(opcode) && isChosen(NEGATED, "condition negated")) {
                changed = NEGATION.get(opcode);
            }
            if (BOUNDARY.containsKey(opcode) && isChosen(OFF_BY_ONE, "strict and non-strict comparison exchanged")) {
                changed = BOUNDARY.get(opcode);
            }
            super.visitJumpInsn(changed, label);
        }

        @Override
        public void visitInsn(int opcode) {
            if (call != null && (opcode == POP || opcode == POP2)) {
                Runnable made = call;
                call = null;
                if (isChosen(SKIPPED, "no call of " + callee)) {
                    discard.run();
                } else {
                    made.run();
                    super.visitInsn(opcode);
                }
                return;
            }
            boolean isSum = opcode == IADD || opcode == LADD, isDifference = opcode == ISUB || opcode == LSUB;
            if ((isSum || isDifference) && (constant == ICONST_1 || constant == LCONST_1)) {
                int zero = constant == ICONST_1 ? ICONST_0 : LCONST_0;
                if (isChosen(OFF_BY_ONE, (isSum ? "+ 1" : "- 1") + " dropped")) {
                    constant = zero;
                }
                flush();
                super.visitInsn(opcode);
                return;
            }
            flush();
            if (opcode == ICONST_0 || opcode == ICONST_1 || opcode == LCONST_1) {
                constant = opcode;
                return;
            }
            if (isSum || isDifference) {
                if (isChosen(WRONG, isSum ? "+ replaced by -" : "- replaced by +")) {
                    super.visitInsn(Map.of(IADD, ISUB, ISUB, IADD, LADD, LSUB, LSUB, LADD).get(opcode));
                    return;
                }
            }
            super.visitInsn(opcode);
        }

        @Override
        public void visitMethodInsn(int opcode, String owner, String name, String descriptor, boolean isInterface) {
            Type[] types = Type.getArgumentTypes(descriptor);
            Type result = Type.getReturnType(descriptor);
            int last = types.length - 1;
            String ownerName = owner.substring(owner.lastIndexOf('/') + 1);
            boolean isConstructor = name.equals("<init>");
            boolean hasEffect = !isConstructor && NO_EFFECT.stream().noneMatch(owner::startsWith)
                && !NO_EFFECT_NAMES.contains(name) && !ownerName.contains("Logg") && !ownerName.contains("Metric");
            if ((constant == ICONST_0 || constant == ICONST_1) && last >= 0 && types[last] == Type.BOOLEAN_TYPE
                && hasEffect && isChosen(WRONG, "last argument of " + ownerName + "." + name + " inverted")) {
                constant = constant == ICONST_0 ? ICONST_1 : ICONST_0;
            }
            flush();
            if (owner.equals("java/lang/Math") && (name.equals("min") || name.equals("max"))) {
                boolean chosen = isChosen(WRONG, name + " replaced by the other of min and max");
                String other = name.equals("min") ? "max" : "min";
                super.visitMethodInsn(opcode, owner, chosen ? other : name, descriptor, isInterface);
                return;
            }
            if (last >= 1 && types[last].equals(types[last - 1]) && hasEffect
                && isChosen(WRONG, "last two arguments of " + ownerName + "." + name + " exchanged")) {
                if (types[last].getSize() == 1) {
                    super.visitInsn(SWAP);
                } else {
                    super.visitInsn(DUP2_X2);
                    super.visitInsn(POP2);
                }
            }
            if (types.length == 0 && OFFSETS_OF.getOrDefault(ownerName, Set.of()).contains(name)) {
                String other = OTHER_OFFSET.getOrDefault(name, name);
                other = name.equals("lastOffset") && ownerName.equals("AbortedTxn") ? "firstOffset" : other;
                boolean chosen = isChosen(WRONG, ownerName + "." + name + " replaced by " + other);
                super.visitMethodInsn(opcode, owner, chosen ? other : name, descriptor, isInterface);
                return;
            }
            if (hasEffect && result == Type.VOID_TYPE) {
                if (isChosen(SKIPPED, "no call of " + ownerName + "." + name)) {
                    discard(descriptor, opcode == INVOKESTATIC);
                } else {
                    super.visitMethodInsn(opcode, owner, name, descriptor, isInterface);
                }
            } else if (hasEffect) {
                call = () -> super.visitMethodInsn(opcode, owner, name, descriptor, isInterface);
                discard = () -> discard(descriptor, opcode == INVOKESTATIC);
                callee = ownerName + "." + name;
            } else {
                super.visitMethodInsn(opcode, owner, name, descriptor, isInterface);
            }
        }

        @Override
        public void visitFieldInsn(int opcode, String owner, String name, String descriptor) {
            flush();
            boolean isStore = opcode == PUTFIELD || opcode == PUTSTATIC;
            if (isStore && !method.endsWith("init>") && isChosen(STALE, "field " + name + " keeps its value")) {
                super.visitInsn(Type.getType(descriptor).getSize() == 2 ? POP2 : POP);
                if (opcode == PUTFIELD) {
                    super.visitInsn(POP);
                }
                return;
            }
            super.visitFieldInsn(opcode, owner, name, descriptor);
        }

        @Override
        public void visitVarInsn(int opcode, int slot) {
            flush();
            boolean isStore = opcode >= ISTORE && opcode <= ASTORE;
            if (isStore && !assigned.add(slot) && isChosen(STALE, "a local variable keeps its value")) {
                super.visitInsn(opcode == LSTORE || opcode == DSTORE ? POP2 : POP);
                return;
            }
            super.visitVarInsn(opcode, slot);
        }

        @Override
        public void visitIincInsn(int slot, int increment) {
            flush();
            if (isChosen(STALE, "a local variable is not incremented")) {
                return;
            }
            super.visitIincInsn(slot, increment);
        }

        @Override
        public void visitIntInsn(int opcode, int operand) {
            flush();
            super.visitIntInsn(opcode, operand);
        }

        @Override
        public void visitTypeInsn(int opcode, String type) {
            flush();
            super.visitTypeInsn(opcode, type);
        }

        @Override
        public void visitInvokeDynamicInsn(String name, String descriptor, Handle bootstrap, Object... arguments) {
            flush();
            super.visitInvokeDynamicInsn(name, descriptor, bootstrap, arguments);
        }

        @Override
        public void visitLabel(Label label) {
            flush();
            super.visitLabel(label);
        }

        @Override
        public void visitLdcInsn(Object value) {
            flush();
            super.visitLdcInsn(value);
        }

        @Override
        public void visitTableSwitchInsn(int min, int max, Label otherwise, Label... labels) {
            flush();
            super.visitTableSwitchInsn(min, max, otherwise, labels);
        }

        @Override
        public void visitLookupSwitchInsn(Label otherwise, int[] keys, Label[] labels) {
            flush();
            super.visitLookupSwitchInsn(otherwise, keys, labels);
        }

        @Override
        public void visitMultiANewArrayInsn(String descriptor, int dimensions) {
            flush();
            super.visitMultiANewArrayInsn(descriptor, dimensions);
        }

        @Override
        public void visitFrame(int type, int locals, Object[] local, int stack, Object[] onStack) {
            flush();
            super.visitFrame(type, locals, local, stack, onStack);
        }
    }
}
