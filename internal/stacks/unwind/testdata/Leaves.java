import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.function.ToDoubleFunction;

// Leaves has two threads that do a kind of work each, own1 and own2, in a method that both run: when that is compiled,
// code of both is in it. Methods whose names begin with rare take next to no time, though they are called in turn with
// others that take much, of which compiled code tells nothing. Each line of the standard input names the work to do
// from then on; both threads have begun it when the program is ready.
class Leaves {
    static volatile long sink;

    interface Work {
        long run(int kind, long x);
    }

    // Straight code, most of it far from what the JVM knows the callers of.
    static final class Straight implements Work {
        public long run(int kind, long x) {
            for (int i = 0; i < 1000; i++) {
                x = kind == 1 ? own1(x) : own2(x);
            }
            return x;
        }

        static long own1(long x) {
            x = x * 0x5851f42d4c957f2dL + 1;
            x = (x ^ x >>> 31) * 0x5851f42d4c957f2dL;
            x = (x ^ x >>> 30) * 0x5851f42d4c957f2dL;
            x = (x ^ x >>> 29) * 0x5851f42d4c957f2dL;
            x = (x ^ x >>> 28) * 0x5851f42d4c957f2dL;
            x = (x ^ x >>> 27) * 0x5851f42d4c957f2dL;
            return keep(x);
        }

        static long own2(long x) {
            x = x * 0x2545f4914f6cdd1dL + 1;
            x = (x ^ x >>> 21) * 0x2545f4914f6cdd1dL;
            x = (x ^ x >>> 22) * 0x2545f4914f6cdd1dL;
            x = (x ^ x >>> 23) * 0x2545f4914f6cdd1dL;
            x = (x ^ x >>> 24) * 0x2545f4914f6cdd1dL;
            x = (x ^ x >>> 25) * 0x2545f4914f6cdd1dL;
            return keep(x);
        }

        static long keep(long x) { // is not inlined
            sink = x;
            return x;
        }
    }

    // A branch at each step, and arithmetic that both have in common.
    static final class Branches implements Work {
        final int[][] kinds = {null, filled(256, 1), filled(256, 2)};
        final int[] values = filled(256, 7);

        public long run(int kind, long x) {
            int[] steps = kinds[kind];
            for (int i = 0; i < 200; i++) {
                x = steps[i] == 1 ? own1(x, i) : own2(x, i);
            }
            return x;
        }

        long own1(long x, int i) {
            long y = x * 31 + values[i & 255] * (long) i;
            return y ^ y >>> 7;
        }

        long own2(long x, int i) {
            long y = x * 31 + values[i & 255] * (long) i;
            return y ^ y >>> 9;
        }
    }

    // A choice without a branch, of which one side computes nothing that the other does not.
    static final class Shared implements Work {
        final int[][] kinds = {null, filled(1000, 1), filled(1000, 2)};

        public long run(int kind, long x) {
            int[] steps = kinds[kind];
            int i = 0;
            do {
                number = steps[i] == 1 ? own1(i) : own2(i);
                i++;
            } while (i < 900);
            return x;
        }

        static volatile int number;

        static int own1(int i) {
            return i * 31 ^ i + 1;
        }

        static int own2(int i) {
            return i * 31;
        }
    }

    // A check of null that is done once for three methods.
    static final class Nulls implements Work {
        static final class Link {
            Link next;
            int value;
        }

        final int[][] kinds = {null, filled(256, 1), filled(256, 2)};
        final Link[] links = new Link[256];

        Nulls() {
            for (int i = 0; i < links.length; i++) {
                links[i] = new Link();
                links[i].value = i;
                links[i].next = i % 4 == 0 ? null : links[i - 1];
            }
        }

        public long run(int kind, long x) {
            int[] steps = kinds[kind];
            for (int i = 0; i < 200; i++) {
                Link link = links[i];
                if (link.next != null) {
                    x = steps[i] == 1 ? own1(link, x) : own2(link, x);
                } else {
                    x += 7;
                }
            }
            return x;
        }

        static long own1(Link link, long x) {
            Link next = link.next;
            return next != null ? x * 31 + next.value : x;
        }

        static long own2(Link link, long x) {
            Link next = link.next;
            return next != null ? x * 33 ^ next.value : x;
        }
    }

    // Boxed numbers, and a call whose target is found by the class.
    static final class Boxes implements Work {
        interface Step {
            Integer apply(Integer x);
        }

        static final class First implements Step {
            public Integer apply(Integer x) {
                return own1(x);
            }

            static Integer own1(Integer x) {
                int sum = x;
                for (int i = 0; i < 50; i++) {
                    sum = sum * 31 + i;
                }
                return sum;
            }
        }

        static final class Second implements Step {
            public Integer apply(Integer x) {
                return own2(x);
            }

            static Integer own2(Integer x) {
                int sum = x;
                for (int i = 1; i < 50; i++) {
                    sum = sum / i + (sum ^ i);
                }
                return sum;
            }
        }

        final List<Integer> numbers = new ArrayList<>();
        final Step[] steps = {null, new First(), new Second()};

        Boxes() {
            for (int i = 0; i < 300; i++) {
                numbers.add(i);
            }
        }

        public long run(int kind, long x) {
            return all(steps[kind]);
        }

        Integer all(Step step) {
            Integer sum = 0;
            for (Integer x : numbers) {
                sum = sum + step.apply(x);
            }
            return sum;
        }
    }

    // Loops of both kinds in one method, some of them bounded by a constant.
    static final class Loops implements Work {
        final int[] a = filled(1000, 3);
        final long[] b = new long[1000];
        final String text = "the quick brown fox jumps over the lazy dog 0123456789";

        public long run(int kind, long x) {
            long sum = 0;
            for (int i = 0; i < 200; i++) {
                sum += kind == 1 ? own1Sum(i) + own1Text(i) + own1Hash(i) : own2Xor(i) + own2Text(i) + own2Hash(i);
            }
            return sum;
        }

        long own1Sum(int n) {
            long sum = 0;
            for (int i = 0; i < a.length; i++) {
                sum += a[i] * (long) n + b[i];
            }
            return sum;
        }

        long own2Xor(int n) {
            long sum = 0;
            for (int i = 0; i < a.length; i++) {
                sum ^= a[i] * (long) n - b[i];
            }
            return sum;
        }

        long own1Text(int n) {
            int h = 3;
            for (int i = 0; i < text.length(); i++) {
                h = h * 31 + text.charAt(i) + n;
            }
            return h;
        }

        long own2Text(int n) {
            int h = 5;
            for (int i = 0; i < text.length(); i++) {
                h = h * 33 ^ text.charAt(i) - n;
            }
            return h;
        }

        long own1Hash(long h) {
            for (int i = 0; i < 20; i++) {
                h = h * 31 + (h >>> 3);
            }
            return h + 1;
        }

        long own2Hash(long h) {
            for (int i = 0; i < 20; i++) {
                h = h * 31 + (h >>> 3);
            }
            return h - 1;
        }
    }

    // A stream over methods without safepoints.
    static final class Streams implements Work {
        final String[] names = new String[50];
        final List<String> all = new ArrayList<>();

        Streams() {
            for (int i = 0; i < names.length; i++) {
                all.add(names[i] = "article number " + i);
            }
        }

        public long run(int kind, long x) {
            ToDoubleFunction<String> f = kind == 1 ? s -> own1(s.length()) : s -> own2(s);
            return (long) all.stream().mapToDouble(f).filter(d -> d > -1e300).sum();
        }

        static double own1(double x) {
            double sum = 0;
            for (int i = 0; i < 40; i++) {
                sum += Math.sin(x + i) * 0.5;
            }
            return sum;
        }

        static double own2(String s) {
            int h = 7;
            for (int k = 0; k < 20; k++) {
                for (int i = 0; i < s.length(); i++) {
                    h = h * 31 + s.charAt(i);
                }
            }
            return h;
        }
    }

    // A loop with a poll, next to a loop without any in the same loop.
    static final class Siblings implements Work {
        public long run(int kind, long x) {
            for (long n = 0; n < 2000 + (x & 1); n = n + 1 + (x & 0)) {
                x = rare(x);
                x = most(x);
            }
            return x;
        }

        static long rare(long x) {
            while ((x & 0x700000000L) > 0x600000000L) {
                x = x * 5 + 3;
            }
            return x;
        }

        static long most(long x) {
            for (int i = 0; i < 900; i++) {
                x = x * 31 + (x >>> 3);
            }
            return x;
        }
    }

    // A loop whose condition has a check, and whose body has none.
    static final class Conditions implements Work {
        final int[] values = filled(1 << 12, 1);

        public long run(int kind, long x) {
            int n = 0;
            while (rare(n)) {
                for (int i = 0; i < 900; i++) {
                    x = x * 31 + (x >>> 3);
                }
                n++;
            }
            return x;
        }

        boolean rare(int n) {
            return values[n & 8191] != 0 && n < 2000;
        }
    }

    // A copy, and a check after it.
    static final class Copies implements Work {
        final byte[][] from = {null, new byte[1 << 20], new byte[1 << 20]}, to = {null, new byte[1 << 20], new byte[1 << 20]};

        public long run(int kind, long x) {
            for (int n = 0; n < 10; n++) {
                System.arraycopy(from[kind], 0, to[kind], 0, 1 << 20);
                x += rare(to[kind], n);
            }
            return x;
        }

        static long rare(byte[] b, int n) {
            return b[n * 1000];
        }
    }

    // A loop of two rounds, of which the compiler makes straight code.
    static final class Rounds implements Work {
        public long run(int kind, long x) {
            for (long n = 0; n < 2000 + (x & 1); n = n + 1 + (x & 0)) {
                x = rare(x);
                for (int i = 0; i < 900; i++) {
                    x = x * 31 + (x >>> 3);
                }
            }
            return x;
        }

        static long rare(long x) {
            boolean first = true;
            while (true) {
                x = x * 5 + 3;
                if (!first) {
                    return x;
                }
                first = false;
            }
        }
    }

    // The same at the end of a loop, which may have its poll then.
    static final class Merged implements Work {
        public long run(int kind, long x) {
            int n = 0;
            while (n < 2000) {
                for (int i = 0; i < 900; i++) {
                    x = x * 31 + (x >>> 3);
                }
                x = Rounds.rare(x);
                if ((x & 7) == 3) {
                    n += 2;
                } else {
                    n++;
                }
            }
            return x;
        }
    }

    static int[] filled(int length, int by) {
        int[] a = new int[length];
        java.util.Arrays.fill(a, by);
        return a;
    }

    static volatile Work work;
    static final AtomicReferenceArray<Work> begun = new AtomicReferenceArray<>(3); // of each kind, what was begun last

    static void work(int kind) {
        Rest rest = new Rest();
        for (long x = kind; ; sink = x) {
            Work next = work;
            begun.set(kind, next);
            x = next.run(kind, x);
            rest.take();
        }
    }

    static void thread1() {
        work(1);
    }

    static void thread2() {
        work(2);
    }

    static Work named(String name) {
        switch (name) {
            case "straight": return new Straight();
            case "branches": return new Branches();
            case "shared": return new Shared();
            case "nulls": return new Nulls();
            case "boxes": return new Boxes();
            case "loops": return new Loops();
            case "streams": return new Streams();
            case "siblings": return new Siblings();
            case "conditions": return new Conditions();
            case "copies": return new Copies();
            case "rounds": return new Rounds();
            case "merged": return new Merged();
            default: throw new IllegalArgumentException(name);
        }
    }

    public static void main(String[] arguments) throws Exception {
        work = named(arguments[0]);
        for (Runnable task : new Runnable[] {Leaves::thread1, Leaves::thread2}) {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            thread.start();
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = ""; line != null; line = in.readLine()) {
            if (!line.isEmpty()) {
                work = named(line);
            }
            while (begun.get(1) != work || begun.get(2) != work) {
                Thread.sleep(1);
            }
            System.out.println("ready");
        }
    }
}
