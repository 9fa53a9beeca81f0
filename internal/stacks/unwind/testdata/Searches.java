// Searches has a thread that searches in texts, and makes other calls between, which leave return addresses where the
// frames of those that search are. It ends with its standard input.
class Searches {
    static volatile int sink;

    static int search(String text, String part) {
        return text.indexOf(part);
    }

    static int other1(int n) {
        return n == 0 ? 1 : other1(n - 1) + 1;
    }

    static int other2(int n, int a, int b, int c) {
        return n == 0 ? 1 : other2(n - 1, b, c, a) + a * b * c;
    }

    static void work() {
        String text = "a text of some length in which it is said ";
        String[] texts = {text + text + text + text, text + text + "and another with \u2603 in UTF-16, "};
        String[] parts = {"it is not", "UTF-16", "\u2603, or another", "said and"};
        Rest rest = new Rest();
        for (int i = 0; ; i++) {
            if ((i & 0xfff) == 0) {
                rest.take();
            }
            if ((i & 15) == 0) {
                sink += (i & 0x10000) == 0 ? other1(9) : other2(9, i, i, i);
            }
            sink += search(texts[i & 1], parts[i >> 1 & 3]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Thread thread = new Thread(Searches::work, "searches");
        thread.setDaemon(true);
        thread.start();
        System.out.println("ready");
        System.in.read();
    }
}
