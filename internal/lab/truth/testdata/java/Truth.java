import java.io.File;
import java.lang.management.CompilationMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToDoubleFunction;
import java.util.zip.CRC32;
import java.util.zip.Deflater;

// A program of known truth in Java: see the documentation of package truth. Each phase has a frame of
// its own, since what calls it calls many; most of what it calls is inlined there, unless the JVM is
// told not to.
class Truth {
    static long sink;

    // Phase is work of one sort. No methods of Java are below it but its own and those of libraries:
    // their names, with * for any text.
    abstract static class Phase {
        final String libraries;
        final String[] functions; // those of its own that take nearly all of its time
        String called; // another of its own
        long took;

        Phase(String libraries, String... functions) {
            this.libraries = libraries;
            this.functions = functions;
        }

        abstract void run();

        String name() {
            return getClass().getName() + ".run";
        }

        // below is an expression for the methods that it calls, in JSON.
        String below() {
            String all = libraries;
            for (Class<?> c = getClass(); c != Phase.class; c = c.getSuperclass()) {
                all += " " + c.getName() + ".* " + c.getName() + "$$Lambda*";
            }
            return all.trim().replace(".", "\\\\.").replace("$", "\\\\$").replace("*", ".*").replace(" ", "|");
        }
    }

    // --- loops and calls ---------------------------------------------------------------------------

    static long hash(long n) {
        long x = n;
        for (long i = 0; i < n; i++) {
            x = x * 31 + i;
        }
        return x;
    }

    static final class Price extends Phase {
        Price() {
            super("Truth.hash", "Truth.hash");
        }

        void run() {
            sink += hash(200_000);
        }
    }

    static final class Reserve extends Phase {
        Reserve() {
            super("Truth.hash", "Truth.hash");
        }

        void run() {
            sink += hash(100_000) + 1;
        }
    }

    static final class Count extends Phase {
        Count() {
            super("");
            called = "Truth$Count.tiny";
        }

        void run() {
            long x = 0;
            for (int i = 0; i < 30_000; i++) {
                x = tiny(x + i);
            }
            sink += x;
        }

        static long tiny(long n) {
            return n * 31 + 7;
        }
    }

    static final class Recurse extends Phase {
        Recurse() {
            super("", "Truth$Recurse.fib");
        }

        void run() {
            sink += fib(18);
        }

        static long fib(long n) {
            return n < 2 ? n : fib(n - 1) + fib(n - 2);
        }
    }

    interface Shape {
        int area(int n);
    }

    static final class Interfaces extends Phase {
        final Shape[] shapes = {new Square(), new Circle(), new Line()};

        Interfaces() {
            super("Truth$Square.area Truth$Circle.area Truth$Line.area");
        }

        void run() {
            int x = 0;
            for (int i = 0; i < 30_000; i++) {
                x += shapes[i % 3].area(x);
            }
            sink += x;
        }
    }

    static final class Square implements Shape {
        public int area(int n) {
            return n * n + 1;
        }
    }

    static final class Circle implements Shape {
        public int area(int n) {
            return n * 3 + 2;
        }
    }

    static final class Line implements Shape {
        public int area(int n) {
            return n ^ 5;
        }
    }

    // --- what the JVM has code of its own for --------------------------------------------------------

    static final class Sines extends Phase {
        Sines() {
            super("java.lang.Math.sin java.lang.StrictMath.sin java.lang.FdLibm*");
        }

        void run() {
            double sum = 0;
            for (int i = 0; i < 3000; i++) {
                sum += Math.sin(i * 0.37);
            }
            sink += (long) sum;
        }
    }

    static final class Copies extends Phase {
        final byte[] from = new byte[1 << 16];
        final byte[] to = new byte[1 << 16];

        Copies() {
            super("java.lang.System.arraycopy");
        }

        void run() {
            for (int i = 0; i < 50; i++) {
                System.arraycopy(from, i, to, 0, to.length - i);
                sink += to[i];
            }
        }
    }

    static final class Texts extends Phase {
        final String[] texts = new String[8];
        final String[] ends = new String[8];

        Texts() {
            super("java.lang.String* java.lang.CharSequence.* java.lang.Math.* java.lang.Character.* "
                + "java.lang.Object.* java.lang.Integer.* java.lang.Long.* jdk.internal.*");
            for (int i = 0; i < texts.length; i++) {
                char[] text = new char[2000];
                Arrays.fill(text, 'a');
                Arrays.fill(text, 1990, 2000, (char) ('b' + i));
                texts[i] = new String(text);
                ends[i] = texts[i].substring(1992);
            }
        }

        void run() {
            for (int i = 0; i < 200; i++) {
                String a = texts[i & 7];
                String b = texts[i * 3 & 7];
                sink += equal(a, b) + order(a, b) + place(a, ends[i * 3 & 7]);
            }
        }

        static int equal(String a, String b) {
            return a.equals(b) ? 1 : 0;
        }

        static int order(String a, String b) {
            return a.compareTo(b);
        }

        static int place(String a, String b) {
            return a.indexOf(b);
        }
    }

    static final class Checksums extends Phase {
        final byte[] data = new byte[1 << 15];

        Checksums() {
            super("java.util.zip.CRC32.* java.lang.ref.Reference.* java.util.Objects.* "
                + "jdk.internal.util.Preconditions.*");
        }

        void run() {
            CRC32 sum = new CRC32();
            for (int i = 0; i < 50; i++) {
                sum.update(data, 0, data.length);
            }
            sink += sum.getValue();
        }
    }

    static final class Deflates extends Phase {
        final byte[] data = new byte[1 << 12];
        final byte[] to = new byte[1 << 13];
        final Deflater deflater = new Deflater();

        Deflates() {
            super("java.util.zip.Deflater* java.util.zip.ZStreamRef.* java.lang.ref.Reference.* java.util.Objects.* "
                + "jdk.internal.util.Preconditions.*");
            for (int i = 0; i < data.length; i++) {
                data[i] = (byte) (i * i >>> 5);
            }
        }

        void run() {
            deflater.reset();
            deflater.setInput(data);
            deflater.finish();
            sink += deflater.deflate(to);
        }
    }

    static final class Clocks extends Phase {
        Clocks() {
            super("java.lang.System.nanoTime");
        }

        void run() {
            for (int i = 0; i < 5000; i++) {
                sink += System.nanoTime();
            }
        }
    }

    // --- two kinds of work in common code --------------------------------------------------------------

    abstract static class Streams extends Phase {
        static final List<String> articles = new ArrayList<>();

        static {
            for (int i = 0; i < 50; i++) {
                articles.add("article number " + i);
            }
        }

        Streams(String own) {
            super("java.util.* java.lang.StrictMath.* java.lang.FdLibm* java.lang.Math.* java.lang.String* "
                + "java.lang.Object.* java.lang.Integer.* java.lang.Double.* java.lang.Number.* java.lang.invoke.* "
                + "jdk.internal.* " + own, own);
        }

        static double all(ToDoubleFunction<String> of) {
            return articles.stream().mapToDouble(of).filter(d -> d > -1e300).sum();
        }
    }

    static final class Tax {
        static double rate(double x) {
            double sum = 0;
            for (int i = 0; i < 40; i++) {
                sum += Math.sin(x + i) * 0.5;
            }
            return sum;
        }
    }

    static final class Index {
        static double match(String s) {
            int h = 7;
            for (int k = 0; k < 20; k++) {
                for (int i = 0; i < s.length(); i++) {
                    h = h * 31 + s.charAt(i);
                }
            }
            return h;
        }
    }

    static final class Rates extends Streams {
        Rates() {
            super("Truth$Tax.rate");
        }

        void run() {
            sink += (long) all(s -> Tax.rate(s.length()));
        }
    }

    static final class Matches extends Streams {
        Matches() {
            super("Truth$Index.match");
        }

        void run() {
            sink += (long) all(s -> Index.match(s));
        }
    }

    interface Step {
        Integer apply(Integer x);
    }

    abstract static class Boxes extends Phase {
        static final List<Integer> numbers = new ArrayList<>();

        static {
            for (int i = 0; i < 300; i++) {
                numbers.add(i);
            }
        }

        Boxes(String own) {
            super("java.util.ArrayList* java.util.Objects.* java.lang.Integer.* java.lang.Number.* java.lang.Object.* "
                + own + ".*", own + ".own");
        }

        static void all(Step step) {
            Integer sum = 0;
            for (Integer x : numbers) {
                sum = sum + step.apply(x);
            }
            sink += sum;
        }
    }

    static final class First implements Step {
        public Integer apply(Integer x) {
            return own(x);
        }

        static Integer own(Integer x) {
            int sum = x;
            for (int i = 0; i < 50; i++) {
                sum = sum * 31 + i;
            }
            return sum;
        }
    }

    static final class Second implements Step {
        public Integer apply(Integer x) {
            return own(x);
        }

        static Integer own(Integer x) {
            int sum = x;
            for (int i = 1; i < 50; i++) {
                sum = sum / i + (sum ^ i);
            }
            return sum;
        }
    }

    static final class FirstBoxes extends Boxes {
        FirstBoxes() {
            super("Truth$First");
        }

        void run() {
            all(new First());
        }
    }

    static final class SecondBoxes extends Boxes {
        SecondBoxes() {
            super("Truth$Second");
        }

        void run() {
            all(new Second());
        }
    }

    abstract static class Branches extends Phase {
        static final int[] values = new int[256];
        final boolean[] kinds = new boolean[256];

        Branches(String own, boolean kind) {
            super("Truth$" + own + ".step");
            called = "Truth$" + own + ".step";
            Arrays.fill(kinds, kind);
        }

        long all() {
            long x = 1;
            for (int k = 0; k < 50; k++) {
                for (int i = 0; i < 200; i++) {
                    x = kinds[i] ? Left.step(x, i) : Right.step(x, i);
                }
            }
            return x;
        }
    }

    static final class Left {
        static long step(long x, int i) {
            long y = x * 31 + Branches.values[i & 255] * (long) i;
            return y ^ y >>> 7;
        }
    }

    static final class Right {
        static long step(long x, int i) {
            long y = x * 31 + Branches.values[i & 255] * (long) i;
            return y ^ y >>> 9;
        }
    }

    static final class LeftBranches extends Branches {
        LeftBranches() {
            super("Left", true);
        }

        void run() {
            sink += all();
        }
    }

    static final class RightBranches extends Branches {
        RightBranches() {
            super("Right", false);
        }

        void run() {
            sink += all();
        }
    }

    // --- allocation, locks, exceptions ---------------------------------------------------------------

    static final class Allocates extends Phase {
        final Object[] kept = new Object[1024];

        Allocates() {
            super("Truth$Allocates$Node.<init> java.lang.Object.<init>");
        }

        void run() {
            for (int i = 0; i < 5000; i++) {
                kept[i & 1023] = i % 5 == 0 ? new int[i & 127] : new Node(i, kept[i * 7 & 1023]);
            }
        }

        static final class Node {
            final int value;
            final Object next;

            Node(int value, Object next) {
                this.value = value;
                this.next = next instanceof int[] ? next : null;
            }
        }
    }

    static final class Locks extends Phase {
        final Object lock = new Object();
        long guarded;

        Locks() {
            super("java.lang.Object.*");
            sink += lock.hashCode();
        }

        void run() {
            for (int i = 0; i < 5000; i++) {
                add(i);
                synchronized (lock) {
                    guarded ^= i;
                }
            }
        }

        synchronized void add(int i) {
            guarded += i;
        }
    }

    static final class Throws extends Phase {
        Throws() {
            super("java.lang.Throwable.* java.lang.*Exception.* java.lang.Object.*");
        }

        void run() {
            for (int i = 0; i < 100; i++) {
                try {
                    sink += deeper(i, 5);
                } catch (IllegalStateException e) {
                    sink++;
                }
            }
        }

        static long deeper(int i, int levels) {
            if (levels == 0) {
                throw new IllegalStateException();
            }
            return deeper(i + 1, levels - 1) * 3;
        }
    }

    // --- libraries ---------------------------------------------------------------------------------

    static final class Sorts extends Phase {
        final Integer[] numbers = new Integer[500];

        Sorts() {
            super("java.util.Arrays.* java.util.*TimSort.* java.util.Comparator.* java.lang.Integer.* "
                + "java.lang.System.* java.lang.Number.* java.lang.Math.* java.lang.Object.* java.lang.Class.* "
                + "java.lang.reflect.Array.* Truth$ByBits.*");
        }

        void run() {
            for (int i = 0; i < numbers.length; i++) {
                numbers[i] = i * 0x9e3779b1 >>> 8;
            }
            Arrays.sort(numbers, new ByBits());
            sink += numbers[7];
        }
    }

    static final class ByBits implements Comparator<Integer> {
        public int compare(Integer a, Integer b) {
            return Integer.compare(a ^ 0x555, b ^ 0x555);
        }
    }

    static final class Lookups extends Phase {
        final Map<String, Integer> words = new HashMap<>();
        final String[] all = new String[1000];

        Lookups() {
            super("java.util.HashMap* java.lang.String* java.lang.Integer.* java.lang.Number.* java.lang.Object.* "
                + "java.util.Objects.*");
            for (int i = 0; i < all.length; i++) {
                all[i] = "word " + i;
                words.put(new String("word " + i), i);
            }
        }

        void run() {
            for (String word : all) {
                sink += words.get(word);
            }
        }
    }

    static final class Formats extends Phase {
        Formats() {
            super("java.* jdk.* sun.*");
        }

        void run() {
            for (int i = 0; i < 10; i++) {
                sink += String.format("%d %s %5.2f %x", i, "text", 3.14 * i, sink).length();
                sink += (i + " of " + sink + " and " + 2.5 * i).length();
            }
        }
    }

    // --- the truth ---------------------------------------------------------------------------------

    static final ThreadMXBean threads = ManagementFactory.getThreadMXBean();

    static long cpuTime() {
        return threads.getCurrentThreadCpuTime();
    }

    static volatile boolean ends;

    static final Phase[] phases = {
        new Price(), new Reserve(), new Count(), new Recurse(), new Interfaces(), new Sines(), new Copies(),
        new Texts(), new Checksums(), new Deflates(), new Clocks(), new Rates(), new Matches(), new FirstBoxes(),
        new SecondBoxes(), new LeftBranches(), new RightBranches(), new Allocates(), new Locks(), new Throws(),
        new Sorts(), new Lookups(), new Formats(),
    };

    // work gives each phase the same time, about, on any JVM.
    static void work() {
        while (!ends) {
            for (Phase phase : phases) {
                long before = cpuTime();
                long now;
                do {
                    phase.run();
                    now = cpuTime();
                } while (now - before < 3_000_000);
                phase.took += now - before;
            }
        }
    }

    static String json(Map<String, ?> all) {
        StringBuilder text = new StringBuilder();
        for (Map.Entry<String, ?> e : all.entrySet()) {
            text.append(text.length() == 0 ? "{" : ", ");
            text.append('"').append(e.getKey()).append("\": ").append(e.getValue());
        }
        return text.append("}").toString();
    }

    static void print(String thread) {
        double all = 0;
        for (Phase phase : phases) {
            all += phase.took;
        }
        Map<String, Double> inclusive = new HashMap<>();
        Map<String, String> above = new HashMap<>();
        Map<String, String> below = new HashMap<>();
        below.put("Truth.cpuTime", "\"(sun\\\\.management|java\\\\.lang\\\\.Thread)\\\\..*\"");
        for (Phase phase : phases) {
            inclusive.put(phase.name(), phase.took / all);
            below.put(phase.name(), '"' + phase.below() + '"');
            if (phase.called != null) {
                above.put(phase.called, "[\"" + phase.name() + "\"]");
            }
            for (String function : phase.functions) {
                inclusive.merge(function, phase.took / all, Double::sum);
                above.merge(function, "[\"" + phase.name() + "\"]", (a, b) -> a.replace("]", ", ") + b.substring(1));
            }
        }
        Map<String, Double> self = new HashMap<>();
        for (String leaf : new String[] {"Truth.hash", "Truth$Recurse.fib", "Truth$First.own", "Truth$Second.own"}) {
            self.put(leaf, inclusive.get(leaf));
        }
        System.out.println("{\"inclusive\": " + json(inclusive) + ", \"self\": " + json(self) + ", \"above\": "
            + json(above) + ", \"below\": " + json(below) + ", \"work\": \"Truth.work\", \"clock\": \"Truth.cpuTime\", "
            + "\"thread\": " + thread + "}");
    }

    // awaitCompiled waits until nothing was compiled for a while, a second unless it is said otherwise, but not for
    // long.
    static void awaitCompiled() throws InterruptedException {
        CompilationMXBean compiler = ManagementFactory.getCompilationMXBean(); // null: there is none
        long before = -1;
        for (int pauses = 0; compiler != null && pauses < 30; pauses++) {
            long now = compiler.getTotalCompilationTime();
            if (now == before) {
                return;
            }
            before = now;
            Thread.sleep(Integer.getInteger("pause", 1000));
        }
    }

    public static void main(String[] arguments) throws Exception {
        final Thread worker = Thread.currentThread();
        final String thread = new File("/proc/thread-self").getCanonicalFile().getName();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            ends = true;
            try {
                worker.join();
            } catch (InterruptedException e) {
                return;
            }
            print(thread);
        }));
        new Thread(() -> {
            try {
                awaitCompiled();
            } catch (InterruptedException e) {
                return;
            }
            for (Phase phase : phases) {
                phase.took = 0;
            }
            System.out.println("ready");
        }).start();
        work();
    }
}
