package compaction.gate;

import java.lang.instrument.ClassFileTransformer;
import java.security.ProtectionDomain;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.Type;

/**
 * Inserts calls of {@link Hooks} into the broker's classes as they are loaded. Only straight-line code is inserted, so
 * that no stack map changes. How often each hook was inserted is counted: the JVM goes on with a class as it was where a
 * transformer fails.
 */
final class Weaver implements ClassFileTransformer {
    private static final String HOOKS = Hooks.class.getName().replace('.', '/');

    private final Map<String, List<Hook>> byClass = new HashMap<>();
    private final Map<Hook, Integer> inserted = new ConcurrentHashMap<>();
    private volatile Throwable failure;

    Weaver(List<Hook> hooks) {
        for (Hook hook : hooks)
            for (String name : hook.classes)
                byClass.computeIfAbsent(name.replace('.', '/'), any -> new java.util.ArrayList<>()).add(hook);
    }

    int inserted(Hook hook) {
        return inserted.getOrDefault(hook, 0);
    }

    Throwable failure() {
        return failure;
    }

    @Override
    public byte[] transform(ClassLoader loader, String name, Class<?> before, ProtectionDomain domain, byte[] bytes) {
        List<Hook> hooks = byClass.get(name);
        if (hooks == null)
            return null;
        try {
            ClassReader reader = new ClassReader(bytes);
            ClassWriter writer = new ClassWriter(reader, ClassWriter.COMPUTE_MAXS);
            Map<Hook, Integer> counts = new HashMap<>();
            reader.accept(new Insertion(writer, hooks, counts), 0);
            inserted.putAll(counts);
            return writer.toByteArray();
        } catch (Throwable error) {
            failure = error;
            return null;
        }
    }

    private static final class Insertion extends ClassVisitor {
        private final List<Hook> hooks;
        private final Map<Hook, Integer> counts;

        Insertion(ClassVisitor next, List<Hook> hooks, Map<Hook, Integer> counts) {
            super(Opcodes.ASM9, next);
            this.hooks = hooks;
            this.counts = counts;
        }

        @Override
        public MethodVisitor visitMethod(int access, String name, String descriptor, String signature, String[] thrown) {
            MethodVisitor visitor = super.visitMethod(access, name, descriptor, signature, thrown);
            if ((access & (Opcodes.ACC_ABSTRACT | Opcodes.ACC_NATIVE)) != 0)
                return visitor;
            for (Hook hook : hooks)
                if (hook.method.equals(Hook.ANY_METHOD)
                    || hook.method.equals(name) && Type.getArgumentTypes(descriptor).length == hook.arguments)
                    visitor = new HookedMethod(visitor, hook, counts, (access & Opcodes.ACC_STATIC) != 0, descriptor);
            return visitor;
        }
    }

    private static final class HookedMethod extends MethodVisitor {
        private final Hook hook;
        private final Map<Hook, Integer> counts;
        private final boolean isStatic;
        private final Type[] arguments;
        private final Type result;

        HookedMethod(MethodVisitor next, Hook hook, Map<Hook, Integer> counts, boolean isStatic, String descriptor) {
            super(Opcodes.ASM9, next);
            this.hook = hook;
            this.counts = counts;
            this.isStatic = isStatic;
            this.arguments = Type.getArgumentTypes(descriptor);
            this.result = Type.getReturnType(descriptor);
        }

        @Override
        public void visitCode() {
            super.visitCode();
            if (hook.afterCall == null)
                insert();
        }

        @Override
        public void visitMethodInsn(int opcode, String owner, String name, String descriptor, boolean isInterface) {
            super.visitMethodInsn(opcode, owner, name, descriptor, isInterface);
            if ((name + descriptor).equals(hook.afterCall))
                insert();
        }

        @Override
        public void visitInsn(int opcode) {
            if (opcode == Opcodes.ARETURN && hook.afterCall == Hook.AT_RETURN) {
                insert();
                super.visitTypeInsn(Opcodes.CHECKCAST, result.getInternalName());
            }
            super.visitInsn(opcode);
        }

        private void insert() {
            for (int number : hook.given)
                super.visitVarInsn(Opcodes.ALOAD, slot(number));
            super.visitMethodInsn(Opcodes.INVOKESTATIC, HOOKS, hook.callee, hook.calleeDescriptor, false);
            counts.merge(hook, 1, Integer::sum);
        }

        private int slot(int number) {
            int slot = isStatic ? 0 : 1;
            for (int before = 0; before < number; before++)
                slot += arguments[before].getSize();
            return number < 0 ? 0 : slot;
        }
    }
}
