// Natives has a thread that calls a native method, which takes some time, from one that inlines nothing. It ends with
// its standard input.
class Natives {
    static volatile int sink;

    static void work() {
        Runtime runtime = Runtime.getRuntime();
        for (Rest rest = new Rest(); true; rest.take()) {
            for (int i = 0; i < 100; i++) {
                sink += runtime.availableProcessors();
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        Thread thread = new Thread(Natives::work, "natives");
        thread.setDaemon(true);
        thread.start();
        System.out.println("ready");
        System.in.read();
    }
}
