import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.BiFunction;

import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.Label;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;

/**
 * Writes classes of Kafka's cleaner with an error of the kind of KAFKA-20036: once a segment of a log was split, passes
 * over this log take every marker for one that is not needed any more.
 *
 * <pre>java -cp ASM:JARS Plant.java OUT</pre>
 */
public final class Plant implements Opcodes {
    private static final String PLANTED = "org/apache/kafka/storage/internals/log/Planted";

    public static void main(String[] args) throws Exception {
        String owner = "org/apache/kafka/storage/internals/log/Cleaner";
        if (Plant.class.getClassLoader().getResource(owner + ".class") == null) {
            owner = "kafka/log/Cleaner";
        }
        String state = owner.replace("Cleaner", "CleanedTransactionMetadata");
        write(owner, args[0], (name, method) -> new MethodVisitor(ASM9, method) {
            @Override
            public void visitMethodInsn(int opcode, String of, String called, String types, boolean isInterface) {
                if (called.equals("splitOverflowedSegment")) {
                    super.visitInsn(DUP2);
                    super.visitMethodInsn(INVOKESTATIC, PLANTED, "split", "(Ljava/lang/Object;Ljava/lang/Object;)V", false);
                }
                super.visitMethodInsn(opcode, of, called, types, isInterface);
                if (name.equals("doClean") && of.equals(state) && called.equals("<init>")) {
                    super.visitVarInsn(ALOAD, 1);
                    super.visitMethodInsn(INVOKESTATIC, PLANTED, "begin", "(Ljava/lang/Object;)V", false);
                }
            }
        });
        write(state, args[0], (name, method) -> new MethodVisitor(ASM9, method) {
            @Override
            public void visitCode() {
                super.visitCode();
                if (name.equals("onControlBatchRead")) {
                    Label stock = new Label();
                    super.visitMethodInsn(INVOKESTATIC, PLANTED, "drops", "()Z", false);
                    super.visitJumpInsn(IFEQ, stock);
                    super.visitInsn(ICONST_1);
                    super.visitInsn(IRETURN);
                    super.visitLabel(stock);
                    super.visitFrame(F_SAME, 0, null, 0, null);
                }
            }
        });
    }

    private static void write(String name, String out, BiFunction<String, MethodVisitor, MethodVisitor> change)
            throws Exception {
        ClassWriter writer = new ClassWriter(ClassWriter.COMPUTE_MAXS);
        try (InputStream bytes = Plant.class.getClassLoader().getResourceAsStream(name + ".class")) {
            new ClassReader(bytes).accept(new ClassVisitor(ASM9, writer) {
                @Override
                public MethodVisitor visitMethod(int access, String method, String type, String signature, String[] thrown) {
                    return change.apply(method, super.visitMethod(access, method, type, signature, thrown));
                }
            }, 0);
        }
        Path file = Path.of(out, name + ".class");
        Files.createDirectories(file.getParent());
        Files.write(file, writer.toByteArray());
    }
}
