import java.io.*;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's own commands, as they are, one after the other in one JVM: starting
 * one takes longer than what most of them do.
 *
 * A line of standard input is a command: its number, its class, its standard input
 * and its arguments, all but the number in Base64, with blanks between. The answer is
 * a line: the number, the exit code, and in Base64 all that it printed to standard
 * output and error.
 */
public class Tools {
    /** What commands print; they may have kept System.out from before. */
    static final class Printed extends OutputStream {
        private final ByteArrayOutputStream now = new ByteArrayOutputStream();

        @Override public synchronized void write(int b) { now.write(b); }

        @Override public synchronized void write(byte[] b, int off, int len) { now.write(b, off, len); }

        synchronized byte[] take() {
            byte[] all = now.toByteArray();
            now.reset();
            return all;
        }
    }

    /** The exit code of the command that runs. */
    static volatile CompletableFuture<Integer> ended;
    /** Its shutdown hooks. */
    static final Queue<Runnable> hooks = new ConcurrentLinkedQueue<>();

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        Printed printed = new Printed();
        PrintStream out = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(out);
        System.setErr(out);
        Exit.setExitProcedure(Tools::exit);
        Exit.setHaltProcedure(Tools::exit);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        for (String line; (line = commands.readLine()) != null; ) {
            String[] words = line.split(" ");
            System.setIn(new ByteArrayInputStream(decode(words[2])));
            String[] argv = new String[words.length - 3];
            for (int i = 0; i < argv.length; i++) argv[i] = new String(decode(words[i + 3]), StandardCharsets.UTF_8);
            int code = run(new String(decode(words[1]), StandardCharsets.UTF_8), argv);
            out.flush();
            answers.println(words[0] + " " + code + " " + Base64.getEncoder().encodeToString(printed.take()));
            answers.flush();
        }
    }

    /** A word that is empty is written "-". */
    static byte[] decode(String word) { return word.equals("-") ? new byte[0] : Base64.getDecoder().decode(word); }

    /** As System.exit it does not come back: what has caught everything else would catch an exception. */
    static void exit(int code, String message) {
        ended.complete(code);
        for (;;) LockSupport.park();
    }

    static int run(String name, String[] argv) throws Exception {
        CompletableFuture<Integer> end = new CompletableFuture<>();
        ended = end;
        Thread command = new Thread(() -> {
            int code = 0;
            try {
                Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) argv);
            } catch (Throwable e) {
                (e instanceof InvocationTargetException ? e.getCause() : e).printStackTrace();
                code = 1;
            }
            end.complete(code);
        }, name);
        command.setDaemon(true);
        command.start();
        int code = end.get();
        for (Runnable hook; (hook = hooks.poll()) != null; ) hook.run();
        return code;
    }
}
