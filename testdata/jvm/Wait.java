import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/** A wait of a kind, which another thread ends after some time, or which ends by itself. */
final class Wait {
    private final Object monitor = new Object();
    private final ReentrantLock lock = new ReentrantLock();
    private final CompletableFuture<String> future = new CompletableFuture<>();
    private final LinkedBlockingQueue<String> queue = new LinkedBlockingQueue<>();
    private final String kind;
    private final long millis;
    private final Runnable context;

    /** Returns when the other thread has what is waited for. The context gives a thread that of the caller. */
    Wait(String kind, long millis, Runnable context) throws InterruptedException {
        this.kind = kind;
        this.millis = millis;
        this.context = context;
        CountDownLatch held = new CountDownLatch(1);
        Thread other = new Thread(() -> hold(held), "other");
        other.setDaemon(true);
        other.start();
        held.await();
    }

    private void hold(CountDownLatch held) {
        lock.lock();
        synchronized (monitor) {
            held.countDown();
            LockSupport.parkNanos(millis * 1_000_000);
        }
        lock.unlock();
        future.complete("");
        queue.add("");
    }

    void end() throws Exception {
        switch (kind) {
            case "monitor" -> {
                synchronized (monitor) {
                    return;
                }
            }
            case "lock" -> lock.lock();
            case "future" -> future.get();
            case "queue" -> queue.take();
            case "sleep" -> Thread.sleep(millis);
            case "park" -> LockSupport.parkNanos(millis * 1_000_000);
            case "object" -> {
                synchronized (this) {
                    wait(millis);
                }
            }
            case "pool" -> { // its thread waits for work, too, with the context of what it did before
                ForkJoinPool pool = new ForkJoinPool(1);
                pool.submit(context).get();
                Thread.sleep(millis);
                pool.submit(() -> { }).get();
                pool.shutdown();
            }
            default -> throw new IllegalArgumentException("no such wait");
        }
    }
}
