#!/usr/bin/env -S python3 -B
"""javac and java on a program of many threads: each JVM has compiler and collector threads of its own, and the program
uses native memory (Deflater, direct buffers, thread stacks) from short and long threads. Class files must be equal."""

from program_test import ProgramTest, same

PROGRAM = r"""
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.stream.*;
import java.util.zip.*;

public class Work {
    record Row(int id, String name, List<Integer> list) {}

    static String work(int seed) throws Exception {
        Random random = new Random(seed);
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        for (int round = 0; round < 10; round++) {
            List<Row> rows = IntStream.range(0, 3000)
                .mapToObj(i -> new Row(i, "n" + random.nextInt(1000), random.ints(i % 7, 0, 99).boxed().toList()))
                .collect(Collectors.toList());
            TreeMap<String, List<Row>> groups = new TreeMap<>(rows.stream().collect(Collectors.groupingBy(Row::name)));
            byte[] text = groups.toString().getBytes("UTF-8"), packed = new byte[text.length + 100];
            Deflater deflater = new Deflater(1 + round % 9);
            deflater.setInput(text);
            deflater.finish();
            int length = deflater.deflate(packed);
            deflater.end();
            Inflater inflater = new Inflater();
            inflater.setInput(packed, 0, length);
            byte[] back = new byte[text.length];
            if (inflater.inflate(back) != text.length || !Arrays.equals(back, text)) throw new Exception("inflate");
            inflater.end();
            ByteBuffer direct = ByteBuffer.allocateDirect(length * 3 + round);
            direct.put(packed, 0, length).flip();
            digest.update(direct);
        }
        return seed + " " + HexFormat.of().formatHex(digest.digest());
    }

    public static void main(String[] arguments) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Future<String>> results = new ArrayList<>();
        for (int i = 0; i < 24; i++) { int seed = i; results.add(pool.submit(() -> work(seed))); }
        for (Future<String> result : results) System.out.println(result.get());
        pool.shutdown();

        LongAdder sum = new LongAdder();
        for (int wave = 0; wave < 50; wave++) {    // short threads
            List<Thread> threads = IntStream.range(wave, wave + 20)
                .mapToObj(i -> new Thread(() -> sum.add(i))).toList();
            threads.forEach(Thread::start);
            for (Thread thread : threads) thread.join();
        }
        System.out.println(sum + " " + IntStream.range(0, 200000).parallel().mapToObj(Integer::toString)
            .collect(Collectors.joining()).hashCode());
    }
}
"""

with ProgramTest("javac", "java") as test:
    (test.dir / "Work.java").write_text(PROGRAM)
    quiet = "-XX:-UsePerfData"  # else the JVM keeps a file outside the temp directory
    for hakmem, classes in (False, "plain"), (True, "hakmem"):
        test.run(["javac", f"-J{quiet}", "-d", classes, "Work.java"], hakmem, loaded=["javac"])
    names = sorted(path.name for path in (test.dir / "plain").iterdir())
    for name in names:
        same(name, test.dir / "plain" / name, test.dir / "hakmem" / name)
    test.both(["java", quiet, "-Xmx256m", "-cp", "hakmem", "Work"], loaded=["java"])
