import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Semaphore;

// Generations has two threads that take turns, at each line of the standard input. Each loads a class of its own
// and runs it until the next line. Then it lets go of it: the JVM unloads it, and puts the class of the other
// thread in its place, which is as large in all parts.
public class Generations {
    public static volatile int lines;

    public static class Own1 implements Runnable {
        volatile long sink;

        @Override
        public void run() {
            own1();
        }

        void own1() {
            Rest rest = new Rest();
            for (int end = Generations.lines + 1; Generations.lines < end; rest.take()) {
                for (int i = 0; i < 10_000; i++) {
                    sink = sink * 0x5851f42d4c957f2dL + 1;
                }
            }
        }
    }

    // Own2 and its method own2 are Own1 with these names.
    static class Loader extends ClassLoader {
        Class<?> define(int index) throws Exception {
            try (InputStream in = Generations.class.getResourceAsStream("Generations$Own1.class")) {
                byte[] bytes = new String(in.readAllBytes(), StandardCharsets.ISO_8859_1)
                        .replace("Own1", "Own" + index).replace("own1", "own" + index)
                        .getBytes(StandardCharsets.ISO_8859_1);
                return defineClass("Generations$Own" + index, bytes, 0, bytes.length);
            }
        }
    }

    static void once(int index) throws Exception {
        ((Runnable) new Loader().define(index).getDeclaredConstructor().newInstance()).run();
    }

    static final Semaphore[] TURNS = {new Semaphore(1), new Semaphore(0)};

    static void work(int index) {
        try {
            while (true) {
                TURNS[index - 1].acquire();
                System.out.println("ready");
                once(index);
                System.gc();
                TURNS[2 - index].release();
            }
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    static void thread1() {
        work(1);
    }

    static void thread2() {
        work(2);
    }

    public static void main(String[] arguments) throws Exception {
        for (Runnable task : new Runnable[] {Generations::thread1, Generations::thread2}) {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            thread.start();
        }
        while (System.in.read() >= 0) {
            lines++;
        }
    }
}
