import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.zip.Deflater;

/** What threads of {@link Demo} do in transactions, each in a method of its own. */
final class Work {
    /** Calls the task from native code. */
    static native void viaNative(Runnable task);

    private static volatile Object sink;

    private Work() {
    }

    /** Runs a kind of work below a method that has the thread's index in its name. */
    static void run(String kind, int index) {
        Runnable task = switch (kind) {
            case "mixed" -> () -> mixed(index);
            case "recursive" -> () -> recurse(30);
            case "deep" -> () -> recurse(300);
            case "virtual" -> () -> virtually(index);
            default -> throw new IllegalArgumentException(kind);
        };
        switch (index) {
            case 1 -> own1(task);
            case 2 -> own2(task);
            case 3 -> own3(task);
            default -> throw new IllegalArgumentException("no method for thread " + index);
        }
    }

    private static void own1(Runnable task) {
        task.run();
    }

    private static void own2(Runnable task) {
        task.run();
    }

    private static void own3(Runnable task) {
        task.run();
    }

    /** Often enough that the caller's clock takes no time beside it, on slow machines too. */
    private static void recurse(int n) {
        for (int i = 0; i < 10; i++) {
            sink = ping(n);
        }
    }

    private static long ping(int n) {
        return n == 0 ? spin(n) : pong(n - 1) + n;
    }

    private static long pong(int n) {
        return n == 0 ? spin(n) : ping(n - 1) + n;
    }

    /** The loop's end depends on what it computes, so that compiled code has a safepoint in it. */
    private static long spin(long n) {
        long x = n | 1;
        do {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 17;
        } while ((x & 0x7fff) != 0);
        return x;
    }

    interface Shape {
        double area();
    }

    record Circle(double r) implements Shape {
        @Override
        public double area() {
            return Math.PI * r * r;
        }
    }

    record Box(double a, double b) implements Shape {
        @Override
        public double area() {
            return a * b;
        }
    }

    /** Streams, lambdas, regular expressions, exceptions, native code below Java and Java below that. */
    private static void mixed(int n) {
        Random random = new Random(n);
        List<Shape> shapes = IntStream.range(0, 500)
                .mapToObj(i -> i % 2 == 0 ? (Shape) new Circle(random.nextDouble()) : new Box(i, 2))
                .collect(Collectors.toList());
        sink = shapes.stream().sorted(Comparator.comparingDouble(Shape::area)).collect(Collectors.groupingBy(
                s -> s.getClass().getSimpleName(), TreeMap::new, Collectors.summingDouble(Shape::area)));
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < 100; i++) {
            text.append("key").append(i).append('=').append(random.nextInt()).append(';');
        }
        Matcher matcher = Pattern.compile("(\\w+)=(-?\\d+);").matcher(text);
        Map<String, Integer> values = new ConcurrentHashMap<>();
        while (matcher.find()) {
            values.merge(matcher.group(1), Integer.parseInt(matcher.group(2)), Integer::sum);
        }
        sink = values;
        try {
            fail(20);
        } catch (IllegalStateException e) {
            sink = e.getStackTrace();
        }
        byte[] bytes = text.toString().getBytes(StandardCharsets.UTF_8);
        viaNative(() -> sink = digest(bytes));
        Deflater deflater = new Deflater();
        deflater.setInput(bytes);
        deflater.finish();
        deflater.deflate(new byte[8192]);
        deflater.end();
    }

    private static void fail(int n) {
        if (n == 0) {
            throw new IllegalStateException("deep");
        }
        fail(n - 1);
    }

    private static byte[] digest(byte[] bytes) {
        try {
            return MessageDigest.getInstance("SHA-256").digest(bytes);
        } catch (java.security.GeneralSecurityException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Works in a virtual thread, which a carrier runs, and waits for it. JDK 17 has none. */
    private static void virtually(int n) {
        try {
            Callable<Thread> start = () -> (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class)
                    .invoke(null, (Runnable) () -> inVirtualThread(n));
            start.call().join();
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    private static void inVirtualThread(int n) {
        for (int i = 0; i < 20; i++) {
            sink = ping(n);
        }
    }
}
