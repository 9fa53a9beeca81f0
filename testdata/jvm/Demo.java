import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.LockSupport;

/**
 * An APM agent in a real JVM, as far as the correlation protocol goes: storage and slots lie in
 * direct buffers, every thread has its own slot. It obeys the commands begin, end, threads,
 * publish, withdraw, restart, report and quit of the demo process in C and prints the same events.
 * It waits as {@link Wait} can, and says how long. After serve, a thread serves requests to a
 * {@link Shop} until its next command. Each is a transaction, and a served event says how much CPU
 * time its methods took.
 *
 * <p>Arguments: library, socket, service, environment, number of threads, and busy, idle or a kind of
 * {@link Work}: then threads are in one transaction after the other. Thread 0 is Java's main thread,
 * which is not the first thread of the process.
 */
final class Demo {
    static native String bind(String socketPath);

    static native void unlinkSocket();

    static native long storagePointer();

    static native long setStorage(ByteBuffer storage);

    static native void setSlot(ByteBuffer slot, long[] variableAndSlot);

    static native void self(long[] tidAndThreadPointer);

    /** The CPU clock of this thread, in nanoseconds. */
    static native long cpu();

    static native void beginTruth(int index, byte[] ids);

    static native void endTruth(int index);

    static native void report(boolean reply);

    /** Executes the program again, with the same arguments. */
    static native void restart();

    /** How long transactions are of threads that begin them without a command. */
    private static final long TRANSACTION_NANOS = 40_000_000;

    private static final boolean RESTS = System.getenv("REST") != null;

    /** Has a thread that burns CPU sleep up to three times as long as it has worked, if REST is set. */
    private static void rest(long since) {
        if (RESTS) {
            LockSupport.parkNanos(Math.min(3 * (System.nanoTime() - since), 3 * TRANSACTION_NANOS));
        }
    }

    /** Offsets in a thread slot: protocol, section 2. */
    private static final int VALID = 2, TRACE_PRESENT = 3, TRACE_FLAGS = 4, IDS = 5, SLOT_BYTES = 37;

    /** One write for each event: lines of this size are not mixed with those of native code. */
    private static final FileOutputStream OUT = new FileOutputStream(FileDescriptor.out);

    private static synchronized void emit(String name, boolean reply, String fields) {
        String event = "{\"event\":\"" + name + "\"" + (reply ? ",\"reply\":true" : "") + fields + "}\n";
        try {
            OUT.write(event.getBytes(StandardCharsets.UTF_8));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** A thread with its slot. All methods but {@link #run} and {@link #describe} are its own. */
    private static final class Worker {
        final int index;
        final String name;
        final boolean busy;
        final ExecutorService executor; // null: the main thread
        final ByteBuffer slot = ByteBuffer.allocateDirect(SLOT_BYTES).order(ByteOrder.nativeOrder());
        final byte[] ids = new byte[SLOT_BYTES - IDS];
        final long[] tidAndThreadPointer = new long[2];
        final long[] variableAndSlot = new long[2];
        boolean begun;
        volatile double result; // where burn leaves it, so that the compiler keeps the work
        volatile boolean wanted; // for a command: stop burning CPU

        Worker(int index, boolean busy) throws Exception {
            this.index = index;
            this.busy = busy && index > 0;
            name = index == 0 ? "java" : "java-" + index; // as the kernel knows it
            executor = index == 0 ? null : Executors.newSingleThreadExecutor(task -> new Thread(task, name));
            run(() -> self(tidAndThreadPointer));
        }

        /** Runs the task in the thread and waits for its end. */
        void run(Runnable task) throws Exception {
            if (executor == null) {
                task.run();
                return;
            }
            wanted = true;
            executor.submit(() -> {
                wanted = false;
                task.run();
            }).get();
        }

        void write(boolean tracePresent) {
            slot.put(VALID, (byte) 0);
            VarHandle.releaseFence();
            slot.putShort(0, (short) 1);
            slot.put(TRACE_PRESENT, (byte) (tracePresent ? 1 : 0));
            slot.put(TRACE_FLAGS, (byte) 1);
            slot.put(IDS, ids);
            VarHandle.releaseFence();
            slot.put(VALID, (byte) 1);
        }

        void begin() {
            end();
            beginTruth(index, ids);
            write(true);
            setSlot(slot, variableAndSlot);
            begun = true;
        }

        void end() {
            if (begun) {
                write(false);
                endTruth(index);
                begun = false;
            }
        }

        /** Burns CPU in Java code until a command comes. */
        void burn() {
            double x = index;
            while (!wanted) {
                long since = System.nanoTime();
                for (int i = 0; i < 100_000; i++) {
                    x = Math.sqrt(x + 1) * 3;
                }
                rest(since);
            }
            result = x;
        }

        /** Serves requests, of 1.2 s of CPU time each, until a command comes. */
        void serve() {
            while (!wanted) {
                begin();
                Shop shop = new Shop();
                for (int i = 0; i < 60 && !wanted; i++) {
                    shop.checkout();
                }
                end();
                List<String> methods = new ArrayList<>();
                shop.methods.forEach((method, ns) -> methods.add("\"" + method + "\":" + ns));
                emit("served", false, ",\"trace_id\":\"" + HexFormat.of().formatHex(ids, 0, 16)
                        + "\",\"methods\":{" + String.join(",", methods) + "}");
            }
        }

        /** Works in one transaction after the other, for good. */
        void work(String kind) {
            while (true) {
                begin();
                long since = System.nanoTime();
                while (System.nanoTime() - since < TRANSACTION_NANOS) {
                    Work.run(kind, index);
                }
                end();
                rest(since);
            }
        }

        /** Waits in a transaction. */
        void await(String kind, long millis) {
            try {
                Wait wait = new Wait(kind, millis, () -> setSlot(slot, new long[2]));
                long before = System.nanoTime();
                begin();
                long began = System.nanoTime();
                wait.end();
                long waited = System.nanoTime() - began;
                end();
                emit("waited", true, describeIds() + ",\"tid\":" + tidAndThreadPointer[0]
                        + ",\"waited_ns\":" + waited + ",\"took_ns\":" + (System.nanoTime() - before));
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }

        String describe() {
            return "\"index\":" + index + ",\"kind\":\"" + (index == 0 ? "main" : busy ? "busy" : "idle")
                    + "\",\"name\":\"" + name + "\",\"tid\":" + tidAndThreadPointer[0]
                    + ",\"thread_pointer\":" + Long.toUnsignedString(tidAndThreadPointer[1])
                    + ",\"variable\":" + Long.toUnsignedString(variableAndSlot[0])
                    + ",\"slot\":" + Long.toUnsignedString(variableAndSlot[1]);
        }

        String describeIds() {
            HexFormat hex = HexFormat.of();
            return ",\"kind\":\"java\",\"trace_id\":\"" + hex.formatHex(ids, 0, 16)
                    + "\",\"span_id\":\"" + hex.formatHex(ids, 16, 24)
                    + "\",\"transaction_id\":\"" + hex.formatHex(ids, 24, 32)
                    + "\",\"thread\":{" + describe() + "}";
        }
    }

    private static ByteBuffer layOutStorage(String... texts) {
        int size = 2;
        for (String text : texts) {
            size += 4 + text.getBytes(StandardCharsets.UTF_8).length;
        }
        ByteBuffer storage = ByteBuffer.allocateDirect(size).order(ByteOrder.nativeOrder());
        storage.putShort((short) 1);
        for (String text : texts) {
            byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
            storage.putInt(bytes.length).put(bytes);
        }
        return storage;
    }

    private final ByteBuffer storage; // must stay reachable: native code has its address
    private final List<Worker> workers = new ArrayList<>();

    private Demo(ByteBuffer storage, int threads, boolean busy) throws Exception {
        this.storage = storage;
        for (int i = 0; i <= threads; i++) {
            workers.add(new Worker(i, busy));
        }
    }

    private void publish(ByteBuffer chosen, boolean reply) {
        long time = System.nanoTime(); // the monotonic clock
        long address = setStorage(chosen);
        emit(chosen == null ? "withdrawn" : "published", reply,
                ",\"storage\":" + address + ",\"time_ns\":" + time);
    }

    private void obey(String line) throws Exception {
        String[] words = line.split(" ");
        Worker worker = words.length > 1 ? workers.get(Integer.parseInt(words[1])) : null;
        switch (words[0]) {
            case "begin" -> {
                worker.run(worker::begin);
                if (worker.busy) {
                    worker.executor.submit(worker::burn);
                }
                emit("begun", true, worker.describeIds());
            }
            case "serve" -> {
                emit("serving", true, "");
                worker.executor.submit(worker::serve);
            }
            case "end" -> {
                worker.run(worker::end);
                emit("ended", true, "");
            }
            case "wait" -> {
                String[] wait = words[2].split(":");
                worker.run(() -> worker.await(wait[0], Long.parseLong(wait[1])));
            }
            case "threads" -> {
                List<String> all = new ArrayList<>();
                workers.forEach(w -> all.add("{" + w.describe() + "}"));
                emit("threads", true, ",\"threads\":[" + String.join(",", all) + "]");
            }
            case "publish" -> publish(storage, true);
            case "withdraw" -> publish(null, true);
            case "restart" -> {
                unlinkSocket();
                emit("executing", true, "");
                restart();
            }
            case "report", "quit" -> report(true);
            default -> throw new IllegalArgumentException("no such command");
        }
    }

    public static void main(String[] arguments) throws Exception {
        String library = arguments[0], socket = arguments[1];
        long time = System.nanoTime();
        System.load(library);
        emit("loaded", false, ",\"path\":\"" + library + "\",\"storage_pointer\":" + storagePointer()
                + ",\"time_ns\":" + time);
        String error = bind(socket);
        if (error != null) {
            throw new IOException(error);
        }
        Demo demo = new Demo(layOutStorage(arguments[2], arguments[3], socket),
                Integer.parseInt(arguments[4]), arguments[5].equals("busy"));
        if (!arguments[5].equals("busy") && !arguments[5].equals("idle")) {
            for (Worker worker : demo.workers.subList(1, demo.workers.size())) {
                worker.executor.submit(() -> worker.work(arguments[5]));
            }
        }
        demo.publish(demo.storage, false);
        emit("ready", false, ",\"pid\":" + ProcessHandle.current().pid());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            try {
                demo.obey(line);
            } catch (Exception e) {
                emit("error", true, ",\"error\":\"" + e.toString().replaceAll("[^ -~]|[\"\\\\]", "?") + "\"");
            }
            if (line.equals("quit")) {
                break;
            }
        }
        unlinkSocket();
        emit("bye", false, "");
        System.exit(0);
    }
}
