package bloomsday;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.io.RandomAccessFile;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileTime;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;

/**
 * Tests of {@link BloomsdayFilter} without a test library: each public method {@code test…} is
 * one. Maven finds them; {@code main} runs them too, and does what the end-to-end test needs.
 *
 * <pre>
 * BloomsdayFilterTest all              every test; -Dgolden=DIR says where the golden blobs are
 * BloomsdayFilterTest answers BLOB     header as JSON, then 1 or 0 for each line of stdin
 * BloomsdayFilterTest damage BLOB      every damaged copy must be refused
 * BloomsdayFilterTest large FOLDER     a sparse blob with more than 2^31 bytes
 * </pre>
 */
public final class BloomsdayFilterTest {
    private static final Path GOLDEN = Path.of(System.getProperty("golden", "../tests/golden"));
    private static final String[] GOLDENS = {
        "v0-blocked.bloom", "v0-guava.bloom", "v1-blocked.bloom", "v1-guava.bloom",
    };
    private static final int GOLDEN_IDS = 400;

    public static void main(String[] args) throws Exception {
        String what = args.length == 0 ? "" : args[0];
        if (what.equals("all")) {
            all();
        } else if (what.equals("answers") && args.length == 2) {
            answers(Path.of(args[1]));
        } else if (what.equals("damage") && args.length == 2) {
            damage(Path.of(args[1]));
        } else if (what.equals("large") && args.length == 2) {
            large(Path.of(args[1]));
        } else {
            System.err.println("usage: all | answers BLOB | damage BLOB | large FOLDER");
            System.exit(2);
        }
    }

    private static void all() throws Exception {
        int count = 0;
        for (Method method : BloomsdayFilterTest.class.getMethods()) {
            if (method.getName().startsWith("test")) {
                method.invoke(new BloomsdayFilterTest());
                count++;
            }
        }
        System.out.println(count + " tests hold");
    }

    public void testXxh3GivesTheVectorsOfTheReferenceLibrary() {
        for (Object[] vector : new Object[][] {
            {"0123456789abcdef0123456789abcdef", 0x208b9e0293ecde8aL},
            {"a", 0x4c4079fb278f7850L},
            {"x".repeat(1024), 0x3b2d926d0db8846aL},
        }) {
            byte[] id = ((String) vector[0]).getBytes(StandardCharsets.UTF_8);
            same(vector[1], BloomsdayFilter.Xxh3.of(id, 0, id.length), id.length + " bytes");
        }
    }

    public void testMurmur3GivesThePublishedVectors() {
        for (String[] vector : new String[][] {
            {"", "00000000000000000000000000000000"},
            {"user-1", "7635ff124bcdac615250585e539d8d41"},
            {"The quick brown fox jumps over the lazy dog", "6c1b07bc7bbc4be347939ac4a93c437a"},
        }) {
            byte[] id = vector[0].getBytes(StandardCharsets.UTF_8);
            long[] hash = new long[2];
            BloomsdayFilter.Murmur3.of(id, 0, id.length, hash, 0);
            byte[] both = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN)
                    .putLong(hash[0]).putLong(hash[1]).array();
            same(vector[1], hex(both), vector[0]);
        }
    }

    public void testBlake3GivesThePublishedVectors() {
        // From the specification's test_vectors.json: byte i of the input is i mod 251.
        Object[][] vectors = {
            {0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
            {1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
            {1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
            {1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
            {1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
            {2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
            {2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"},
            {31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
            {102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"},
        };
        for (Object[] vector : vectors) {
            byte[] input = new byte[(int) vector[0]];
            for (int i = 0; i < input.length; i++) {
                input[i] = (byte) (i % 251);
            }
            for (int piece : new int[] {1, 63, 64, 65, 1000, 1024, 4096, 1 << 20}) {
                BloomsdayFilter.Blake3 hasher = new BloomsdayFilter.Blake3();
                for (int at = 0; at < input.length; at += piece) {
                    hasher.update(input, at, Math.min(piece, input.length - at));
                }
                same(vector[1], hex(hasher.finish()), vector[0] + " bytes by " + piece);
            }
        }
    }

    public void testABlockHasAnIdWithAnyNumberOfProbes() {
        Random random = new Random(11);
        for (int probes = 1; probes <= 16; probes++) {
            int low = random.nextInt();
            long[] block = new long[24];
            for (int i = 0; i < probes; i++) {
                int bit = low * BloomsdayFilter.SALTS[i] >>> 23;
                block[8 + bit / 64] |= 1L << bit % 64;
            }
            LongBuffer chunk = LongBuffer.wrap(block);
            holds(BloomsdayFilter.testBits(chunk, 8, low, probes), probes + " probes");
            for (int bit = 0; bit < 512; bit++) {
                long word = block[8 + bit / 64];
                block[8 + bit / 64] &= ~(1L << bit % 64);
                boolean untouched = block[8 + bit / 64] == word;
                same(untouched, BloomsdayFilter.testBits(chunk, 8, low, probes),
                        probes + " probes, without bit " + bit);
                block[8 + bit / 64] = word;
            }
        }
    }

    public void testGoldenBlobsAnswerAndStateWhatTheyContain() throws IOException {
        for (String name : GOLDENS) {
            List<BloomsdayFilter> filters = everyWay(GOLDEN.resolve(name));
            for (BloomsdayFilter filter : filters) {
                BloomsdayFilter.Header header = filter.header();
                same(name.charAt(1) - '0', header.formatVersion(), name);
                same(name.contains("blocked") ? "blocked" : "guava", header.layout(), name);
                same("2024-02-29", header.day().toString(), name);
                same((long) GOLDEN_IDS, header.ids(), name);
                same(Files.size(GOLDEN.resolve(name)), header.bytes(), name);
                holds(header.toString().contains(header.digest()), name);
            }
            List<byte[]> ids = new ArrayList<>();
            for (int i = 0; i < 10_000; i++) {
                ids.add(user(i).getBytes(StandardCharsets.UTF_8));
            }
            boolean[] answers = lookUp(filters, ids);
            int hits = 0;
            for (int i = 0; i < answers.length; i++) {
                holds(answers[i] || i >= GOLDEN_IDS, name + ": a miss of ID " + i);
                hits += answers[i] ? 1 : 0;
            }
            holds(hits < GOLDEN_IDS + 400, name + ": " + hits + " hits");
        }
    }

    public void testWhatThisClassDoesNotReadIsNamed() throws IOException {
        String[][] cases = {
            {"v1-spark1.bloom", "`spark1`"}, {"v1-spark2.bloom", "`spark2`"}, {"v1-url.bloom", "URLs"},
        };
        for (String[] one : cases) {
            throwing(BloomsdayFilter.UnsoundException.class,
                    () -> BloomsdayFilter.open(GOLDEN.resolve(one[0])), one[1]);
        }
    }

    public void testWhatIsNoIdIsAMiss() throws IOException {
        for (String name : GOLDENS) {
            BloomsdayFilter filter = BloomsdayFilter.open(GOLDEN.resolve(name));
            for (int length : new int[] {0, 1025, 5000}) {
                holds(!filter.contains(new byte[length]), name + " " + length);
                holds(!filter.contains("x".repeat(length)), name + " " + length);
            }
            // 513 characters with 1,026 bytes.
            holds(!filter.contains("é".repeat(513)), name);
            byte[][] ids = {new byte[0], user(0).getBytes(StandardCharsets.UTF_8), new byte[1025]};
            boolean[] answers = {true, false, true};
            filter.containsBatch(ids, answers);
            holds(Arrays.equals(answers, new boolean[] {false, true, false}), name);
            filter.containsBatch(new byte[0][], new boolean[0]);
            filter.containsBatch(new byte[0], new int[1], new boolean[0]);
        }
    }

    public void testWrongArgumentsAreRefused() throws IOException {
        BloomsdayFilter filter = BloomsdayFilter.open(GOLDEN.resolve(GOLDENS[0]));
        byte[] ten = new byte[10];
        throwing(IndexOutOfBoundsException.class, () -> filter.contains(ten, 5, 6), "");
        throwing(IndexOutOfBoundsException.class, () -> filter.contains(ten, -1, 2), "");
        throwing(IllegalArgumentException.class,
                () -> filter.containsBatch(new byte[3][1], new boolean[2]), "3 IDs");
        throwing(IllegalArgumentException.class,
                () -> filter.containsBatch(ten, new int[0], new boolean[2]), "offset");
        throwing(IndexOutOfBoundsException.class,
                () -> filter.containsBatch(ten, new int[] {0, 5, 4}, new boolean[2]), "");
        throwing(IndexOutOfBoundsException.class,
                () -> filter.containsBatch(ten, new int[] {0, 11}, new boolean[2]), "");
        boolean[] answers = new boolean[2];
        throwing(NullPointerException.class,
                () -> filter.containsBatch(new byte[][] {{1}, null}, answers), "ID 1 is null");
        throwing(IndexOutOfBoundsException.class,
                () -> filter.containsBatch(ten, new int[] {0, 1, 11}, answers), "");
        holds(!answers[0] && !answers[1], "an exception left an answer");
    }

    public void testAnIntervalHasAMillisecondOrMoreAndNoEnd() throws IOException {
        Path file = GOLDEN.resolve(GOLDENS[0]);
        for (Duration interval : new Duration[] {
            Duration.ZERO, Duration.ofNanos(999_999), Duration.ofSeconds(Long.MIN_VALUE),
        }) {
            throwing(IllegalArgumentException.class,
                    () -> BloomsdayFilter.Watched.open(file, interval), "millisecond");
        }
        for (Duration interval : new Duration[] {
            Duration.ofMillis(1), Duration.ofMillis(Long.MAX_VALUE),
            Duration.ofSeconds(Long.MAX_VALUE),
        }) {
            BloomsdayFilter.Watched.open(file, interval).close();
        }
    }

    public void testDamageOfAnyKindIsRefused() throws Exception {
        for (String name : GOLDENS) {
            damage(GOLDEN.resolve(name));
        }
    }

    public void testDamageBehindAFittingDigestIsRefusedAndNamed() throws Exception {
        Path folder = Files.createTempDirectory("bloomsday");
        try {
            for (String name : new String[] {"v1-blocked.bloom", "v1-guava.bloom"}) {
                boolean blocked = name.contains("blocked");
                byte[] good = Files.readAllBytes(GOLDEN.resolve(name));
                int text = 14 + 8 + 2 + 8 + 10; // behind the texts `rt` and the day
                Object[][] cases = {
                    {8, 2, "version"},
                    {14 + 8, 'R', "name of a filter"},
                    {14 + 8 + 2 + 8, 'x', "YYYY-MM-DD"},
                    {14 + 8 + 2 + 8 + 8, '3', "calendar"},
                    {text, 3, "its layout is `spark2`"},
                    {text, 4, "layout"},
                    {text + 1 + 8, 0, "probes"},
                    {text + 1 + 8 + 4 + 8, 7, "the hash"},
                    {text + 1 + 8 + 4 + 8 + 3, 1, "seed"},
                    {text + 1 + 8 + 4 + 8 + 3 + 8, 1, "key id"},
                    {text + 1 + 8 + 4 + 8 + 3 + 16, 1, "encoding"},
                    {text + 1 + 8 + 4 + 8 + 3 + 16, 2, "its IDs are URLs"},
                    {text + 1 + 8 + 4 + 8 + 3 + 17, 2, "origin"},
                    {text + 1 + 8 + 4 + 8 + 3 + 18 + 7, 0x80, "IDs"},
                    {text + 1 + 8 + 4 + 8 + 3 + 18, 1, "IDs set"},
                    {text + 1 + 8 + 4 + 8 + 3 + 26 + 7, 0x80, "fpp"},
                    {text + 1 + 8 + 4 + 8 + 3 + 34 + 4, 0xff, "hits"},
                    {text + 1 + 8 + 4 + 8 + 3 + 50, 0xee, "bits are set"},
                    {text + 1 + 8 + 4 + 8 + 3 + 58 + 8, 0xee, "hash"},
                    {good.length - 100, good[good.length - 100] ^ 1, "bits are set"},
                };
                for (Object[] wrong : cases) {
                    byte[] bytes = good.clone();
                    int at = (int) wrong[0];
                    bytes[at] = (byte) (wrong[1] instanceof Character
                            ? (char) wrong[1] : (int) wrong[1]);
                    seal(bytes);
                    refused(folder.resolve("forged-" + name), bytes, (String) wrong[2]);
                }
                // The last position of the test vector, and a byte of the space behind it.
                int record = 14 + (good[10] & 255) + (good[11] & 255) * 256;
                byte[] bytes = good.clone();
                bytes[record - 8] ^= 1;
                refused(folder.resolve("forged-" + name), seal(bytes), "tests bit");
                bytes = good.clone();
                bytes[record] = 1;
                refused(folder.resolve("forged-" + name), seal(bytes), "zeros");
                if (!blocked) {
                    bytes = good.clone();
                    bytes[(record + 4095) / 4096 * 4096 + 1]++;
                    refused(folder.resolve("forged-" + name), seal(bytes), "body that begins");
                }
            }
            throwing(NoSuchFileException.class,
                    () -> BloomsdayFilter.open(folder.resolve("absent.bloom")), "absent.bloom");
            throwing(IOException.class, () -> BloomsdayFilter.open(folder), folder.toString());
            // Its opening would wait for a writer.
            Path pipe = folder.resolve("pipe");
            new ProcessBuilder("mkfifo", pipe.toString()).start().waitFor();
            throwing(IOException.class, () -> BloomsdayFilter.open(pipe), "not a regular file");
        } finally {
            delete(folder);
        }
    }

    public void testAWatchedFileIsReopenedAndADamagedOneChangesNothing() throws Exception {
        Path folder = Files.createTempDirectory("bloomsday");
        Path file = folder.resolve("rt.bloom");
        try {
            replace(file, Files.readAllBytes(GOLDEN.resolve("v1-blocked.bloom")));
            try (BloomsdayFilter.Watched watched =
                    BloomsdayFilter.Watched.open(file, Duration.ofDays(1))) {
                BloomsdayFilter first = watched.filter();
                holds(!watched.reload() && watched.filter() == first, "nothing has changed");

                replace(file, new byte[5000]);
                throwing(BloomsdayFilter.UnsoundException.class, watched::reload, "rt.bloom");
                throwing(BloomsdayFilter.UnsoundException.class, watched::reload, "rt.bloom");
                holds(watched.lastFailure() instanceof BloomsdayFilter.UnsoundException, "the failure is reported");
                holds(watched.filter() == first, "the old filter stays");
                Files.delete(file);
                throwing(NoSuchFileException.class, watched::reload, "rt.bloom");
                holds(watched.filter() == first, "the old filter stays");

                replace(file, Files.readAllBytes(GOLDEN.resolve("v1-guava.bloom")));
                holds(watched.reload() && watched.lastFailure() == null, "mended");
                same("guava", watched.filter().header().layout(), "the new one");
                holds(first.contains(user(1)), "the old one still answers");
            }
            throwing(BloomsdayFilter.UnsoundException.class, () -> BloomsdayFilter.Watched.open(
                    replace(file, new byte[100]), Duration.ofDays(1)), "rt.bloom");
        } finally {
            delete(folder);
        }
    }

    public void testADamagedFileIsReadAgainOnlyWhenItChangedOrByReload() throws Exception {
        Path folder = Files.createTempDirectory("bloomsday");
        Path file = folder.resolve("rt.bloom");
        byte[] good = Files.readAllBytes(GOLDEN.resolve("v1-blocked.bloom"));
        byte[] damaged = good.clone();
        damaged[damaged.length - 100] ^= 1;
        Class<?> unsound = BloomsdayFilter.UnsoundException.class;
        try {
            replace(file, good);
            try (BloomsdayFilter.Watched watched =
                    BloomsdayFilter.Watched.open(file, Duration.ofDays(1))) {
                BloomsdayFilter first = watched.filter();
                replace(file, damaged);
                throwing(unsound, watched::check, "rt.bloom");
                // Sound bytes with the same stamp: whoever reads them has a new filter.
                FileTime modified = Files.getLastModifiedTime(file);
                Files.write(file, good);
                Files.setLastModifiedTime(file, modified);
                holds(!watched.check() && watched.filter() == first, "it was read again");
                holds(unsound.isInstance(watched.lastFailure()), "the failure stays");
                // Another failure in between is not the one that is reported afterwards.
                Path away = Files.move(file, folder.resolve("away"));
                throwing(NoSuchFileException.class, watched::check, "rt.bloom");
                Files.move(away, file);
                holds(!watched.check(), "it was read again");
                holds(unsound.isInstance(watched.lastFailure()), "which failure");
                holds(watched.reload() && watched.filter() != first, "it was not read again");
                holds(watched.lastFailure() == null && !watched.check(), "mended");

                replace(file, damaged);
                throwing(unsound, watched::check, "rt.bloom");
                modified = Files.getLastModifiedTime(file);
                Files.write(file, good);
                Files.setLastModifiedTime(file, modified);
                holds(!watched.check(), "it was read again at once");
                watched.again = System.nanoTime();
                holds(watched.check() && watched.lastFailure() == null, "an hour later");

                replace(file, damaged);
                throwing(unsound, watched::check, "rt.bloom");
                replace(file, good);
                holds(watched.check() && watched.lastFailure() == null, "another file is read");
            }
        } finally {
            delete(folder);
        }
    }

    public void testAFileOfAnotherFilterIsRefusedWhenANameIsExpected() throws Exception {
        Path folder = Files.createTempDirectory("bloomsday");
        Path file = folder.resolve("rt.bloom");
        byte[] rt = Files.readAllBytes(GOLDEN.resolve("v1-blocked.bloom"));
        byte[] other = rt.clone();
        other[14 + 8] = 'x';
        seal(other);
        String says = "rt.bloom is a blob of the filter `xt`: expected `rt`";
        Class<?> unsound = BloomsdayFilter.UnsoundException.class;
        try {
            replace(file, other);
            Duration day = Duration.ofDays(1);
            throwing(unsound, () -> BloomsdayFilter.Watched.open(file, "rt", day), says);
            throwing(unsound, () -> BloomsdayFilter.Watched.map(file, "rt", day), says);
            throwing(IllegalArgumentException.class,
                    () -> BloomsdayFilter.Watched.open(file, "ZZ", day), "name of a filter");
            BloomsdayFilter.Watched.open(file, "xt", day).close();
            replace(file, rt);
            try (BloomsdayFilter.Watched expecting = BloomsdayFilter.Watched.map(file, "rt", day);
                    BloomsdayFilter.Watched any = BloomsdayFilter.Watched.map(file, day)) {
                BloomsdayFilter first = expecting.filter();
                replace(file, other);
                throwing(unsound, expecting::reload, says);
                holds(expecting.filter() == first, "the old filter stays");
                holds(any.reload(), "without a name, any filter will do");
                same("xt", any.filter().header().filter(), "its name");
            }
        } finally {
            delete(folder);
        }
    }

    public void testLookupsGoOnWhileAThreadSwapsFilters() throws Exception {
        Path folder = Files.createTempDirectory("bloomsday");
        Path file = folder.resolve("rt.bloom");
        byte[][] days = {
            Files.readAllBytes(GOLDEN.resolve("v1-blocked.bloom")),
            new byte[3000],
            Files.readAllBytes(GOLDEN.resolve("v1-guava.bloom")),
        };
        try {
            replace(file, days[0]);
            AtomicLong misses = new AtomicLong();
            AtomicLong lookups = new AtomicLong();
            try (BloomsdayFilter.Watched watched =
                    BloomsdayFilter.Watched.map(file, Duration.ofMillis(1))) {
                Thread[] threads = new Thread[3];
                for (int t = 0; t < threads.length; t++) {
                    threads[t] = new Thread(() -> {
                        for (int i = 0; !Thread.currentThread().isInterrupted(); i++) {
                            if (!watched.filter().contains(user(i % GOLDEN_IDS))) {
                                misses.incrementAndGet();
                            }
                            lookups.incrementAndGet();
                        }
                    });
                    threads[t].start();
                }
                BloomsdayFilter before = watched.filter();
                int swaps = 0;
                long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
                for (int i = 1; swaps < 30; i++) {
                    replace(file, days[i % days.length]);
                    long patience = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(50);
                    while (watched.filter() == before && System.nanoTime() < patience) {
                        Thread.onSpinWait();
                    }
                    swaps += watched.filter() == before ? 0 : 1;
                    before = watched.filter();
                    holds(System.nanoTime() < deadline, swaps + " swaps in a minute");
                }
                for (Thread thread : threads) {
                    thread.interrupt();
                    thread.join();
                }
            }
            same(0L, misses.get(), lookups + " lookups");
            holds(lookups.get() > 1000, lookups + " lookups");
        } finally {
            delete(folder);
        }
    }

    /** Prints the header, and the answers in which all ways of asking agree. */
    private static void answers(Path file) throws IOException {
        List<BloomsdayFilter> filters = everyWay(file);
        BloomsdayFilter.Header h = filters.get(0).header();
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        out.printf(Locale.ROOT,
                "{\"filter\": \"%s\", \"day\": \"%s\", \"digest\": \"%s\", \"format\": %d,"
                        + " \"layout\": \"%s\", \"units\": %d, \"probes\": %d, \"bits\": %d,"
                        + " \"bytes\": %d, \"ids\": %d, \"ids_estimated\": %b, \"fpp_target\": %s,"
                        + " \"fpp_measured\": %s, \"fpp_hits\": %d, \"fpp_lookups\": %d,"
                        + " \"fill\": %s}%n",
                h.filter(), h.day(), h.digest(), h.formatVersion(), h.layout(), h.units(),
                h.probes(), h.bits(), h.bytes(), h.ids(), h.idsEstimated(), h.fppTarget(),
                h.fppMeasured(), h.fppHits(), h.fppLookups(), h.fill());
        List<byte[]> ids = new ArrayList<>();
        byte[] all = System.in.readAllBytes();
        for (int at = 0, i = 0; i < all.length; i++) {
            if (all[i] == '\n') {
                ids.add(Arrays.copyOfRange(all, at, i));
                at = i + 1;
            }
        }
        for (boolean answer : lookUp(filters, ids)) {
            out.print(answer ? "1\n" : "0\n");
        }
        out.flush();
    }

    /** The file in memory and mapped, whole and in the smallest chunks. */
    private static List<BloomsdayFilter> everyWay(Path file) throws IOException {
        List<BloomsdayFilter> filters = new ArrayList<>();
        filters.add(BloomsdayFilter.open(file));
        filters.add(BloomsdayFilter.map(file));
        if (Files.size(file) < 1 << 20) {
            filters.add(BloomsdayFilter.open(file, false, 3));
            filters.add(BloomsdayFilter.open(file, true, 4));
        }
        return filters;
    }

    /** Looks up IDs in every way that there is; all must agree. */
    private static boolean[] lookUp(List<BloomsdayFilter> filters, List<byte[]> ids) {
        boolean[] first = null;
        byte[][] separate = ids.toArray(new byte[0][]);
        ByteArrayOutputStream joined = new ByteArrayOutputStream();
        joined.write(7);
        int[] offsets = new int[separate.length + 1];
        offsets[0] = 1;
        for (int i = 0; i < separate.length; i++) {
            joined.writeBytes(separate[i]);
            offsets[i + 1] = joined.size();
        }
        byte[] bytes = joined.toByteArray();
        for (BloomsdayFilter filter : filters) {
            boolean[] single = new boolean[separate.length];
            boolean[] batch = new boolean[separate.length];
            boolean[] column = new boolean[separate.length];
            Arrays.fill(batch, true);
            filter.containsBatch(separate, batch);
            filter.containsBatch(bytes, offsets, column);
            for (int i = 0; i < separate.length; i++) {
                byte[] id = separate[i];
                single[i] = filter.contains(id);
                same(single[i], filter.contains(bytes, offsets[i], id.length), "within an array");
                String text = new String(id, StandardCharsets.UTF_8);
                if (Arrays.equals(text.getBytes(StandardCharsets.UTF_8), id)) {
                    same(single[i], filter.contains(text), "as a String");
                }
            }
            holds(Arrays.equals(single, batch), "a batch of arrays");
            holds(Arrays.equals(single, column), "a batch of offsets");
            first = first == null ? single : first;
            holds(Arrays.equals(single, first), "another way of opening");
        }
        return first;
    }

    /** Flips bits, cuts and lengthens copies of a sound blob; each must be refused. */
    private static void damage(Path file) throws Exception {
        byte[] good = Files.readAllBytes(file);
        BloomsdayFilter.open(file);
        Path folder = Files.createTempDirectory("bloomsday");
        Path copy = folder.resolve("damaged.bloom");
        Random random = new Random(7);
        int refused = 0;
        try {
            // Every byte of a small blob, and 5,000 of a large one with all of its beginning.
            for (int at = 0; at < good.length; at += at < 2500 ? 1 : 1 + good.length / 2500) {
                byte[] bytes = good.clone();
                bytes[at] ^= (byte) (1 << random.nextInt(8));
                refused(copy, bytes, "expected");
                refused++;
            }
            int step = 1 + good.length / 2500;
            for (int length = 0; length < good.length; length += step) {
                refused(copy, Arrays.copyOf(good, length), "expected");
                refused++;
            }
            for (int around : new int[] {14, 46, 4096, 8192, good.length - 32, good.length}) {
                for (int length = Math.max(around - 3, 0); length < around + 3; length++) {
                    if (length != good.length) {
                        refused(copy, Arrays.copyOf(good, length), "expected");
                        refused++;
                    }
                }
            }
            // Blocks of zeros and of other parts of the file, as torn writes leave them.
            for (int i = 0; i < 200; i++) {
                byte[] bytes = good.clone();
                int length = Math.min(good.length, 1 << random.nextInt(13));
                int to = random.nextInt(good.length - length + 1);
                int from = random.nextInt(good.length - length + 1);
                if ((i & 1) == 0) {
                    Arrays.fill(bytes, to, to + length, (byte) 0);
                } else {
                    System.arraycopy(good, from, bytes, to, length);
                }
                if (!Arrays.equals(bytes, good)) {
                    refused(copy, bytes, "expected");
                    refused++;
                }
            }
        } finally {
            delete(folder);
        }
        System.out.println(refused + " damaged copies of " + file.getFileName() + " were refused");
    }

    /** A sparse blob with more than 2^31 bytes, with one ID behind them. */
    private static void large(Path folder) throws Exception {
        for (String layout : new String[] {"blocked", "guava"}) {
            boolean blocked = layout.equals("blocked");
            Path file = folder.resolve("large-" + layout + ".bloom");
            long units = blocked ? (1L << 25) + 5000 * 64 : (1L << 28) + 2_000_000;
            int probes = 2;
            long bits = units * (blocked ? 512 : 64);
            String id;
            long[] positions;
            int i = 0;
            do {
                id = user(i++);
                positions = positions(id, blocked, units, probes);
            } while (positions[0] >> 3 <= 1L << 31 || positions[1] >> 3 <= 1L << 31);

            ByteBuffer head = ByteBuffer.allocate(8192).order(ByteOrder.LITTLE_ENDIAN);
            head.put("BLOOMSDY".getBytes(StandardCharsets.US_ASCII)).putShort((short) 1).putInt(0);
            head.putLong(2).put((byte) 'r').put((byte) 't');
            head.putLong(10).put("2026-11-19".getBytes(StandardCharsets.US_ASCII));
            head.put((byte) (blocked ? 0 : 1)).putLong(units).putInt(probes);
            head.putLong(blocked ? bits / 8 : 6 + bits / 8).put((byte) (blocked ? 0 : 1));
            head.putShort((short) (blocked ? 64 : 128));
            head.putLong(blocked ? BloomsdayFilter.Xxh3.SEED : 0).putLong(0);
            head.put((byte) 0).put((byte) 0).putLong(1).putDouble(0.5).putLong(0).putLong(0);
            head.putLong(positions[0] == positions[1] ? 1 : 2);
            head.putLong(blocked ? 64 : 128);
            int at = head.position();
            head.position(at + (blocked ? 512 : 1024)).putLong(64L * probes);
            for (int j = 0; j < 64; j++) {
                char[] letters = new char[j < 16 ? j + 1 : 16 + 21 * (j - 15)];
                for (int l = 0; l < letters.length; l++) {
                    letters[l] = (char) ('a' + (j + l) % 26);
                }
                byte[] bytes = new String(letters).getBytes(StandardCharsets.US_ASCII);
                long[] hash = {BloomsdayFilter.Xxh3.of(bytes, 0, bytes.length), 0};
                if (!blocked) {
                    BloomsdayFilter.Murmur3.of(bytes, 0, bytes.length, hash, 0);
                    head.putLong(at + 16 * j + 8, hash[1]);
                }
                head.putLong(at + (blocked ? 8 : 16) * j, hash[0]);
                for (long position : positions(new String(letters), blocked, units, probes)) {
                    head.putLong(position);
                }
            }
            int record = head.position() - 14;
            head.putInt(10, record);
            int bodyAt = (14 + record + 4095) / 4096 * 4096;
            long bitsAt = blocked ? bodyAt : bodyAt + 6;
            long size = bitsAt + bits / 8 + 32;
            try (RandomAccessFile out = new RandomAccessFile(file.toFile(), "rw")) {
                out.setLength(size);
                out.write(head.array(), 0, bodyAt);
                if (!blocked) {
                    out.writeByte(1);
                    out.writeByte(probes);
                    out.writeInt((int) units);
                }
                for (long position : positions) {
                    long place = bitsAt + (position >> 3 ^ (blocked ? 0 : 7));
                    out.seek(place);
                    int old = out.read();
                    out.seek(place);
                    out.write(old | 1 << (position & 7));
                }
                BloomsdayFilter.Blake3 hasher = new BloomsdayFilter.Blake3();
                byte[] piece = new byte[1 << 20];
                out.seek(0);
                for (long left = size - 32; left > 0; left -= piece.length) {
                    int part = (int) Math.min(left, piece.length);
                    out.readFully(piece, 0, part);
                    hasher.update(piece, 0, part);
                }
                out.seek(size - 32);
                out.write(hasher.finish());
            }
            BloomsdayFilter filter = BloomsdayFilter.map(file);
            holds(filter.contains(id), "the ID behind 2^31 bytes");
            boolean[] answers = new boolean[3];
            byte[] present = id.getBytes(StandardCharsets.UTF_8);
            filter.containsBatch(new byte[][] {{1}, present, {2}}, answers);
            holds(Arrays.equals(answers, new boolean[] {false, true, false}), "in a batch");
            System.out.println(filter.header());
            Files.delete(file);
        }
    }

    private static long[] positions(String id, boolean blocked, long units, int probes) {
        byte[] bytes = id.getBytes(StandardCharsets.UTF_8);
        long[] positions = new long[probes];
        long[] hash = new long[2];
        long h = BloomsdayFilter.Xxh3.of(bytes, 0, bytes.length);
        BloomsdayFilter.Murmur3.of(bytes, 0, bytes.length, hash, 0);
        long block = new java.math.BigInteger(Long.toUnsignedString(h))
                .multiply(java.math.BigInteger.valueOf(units)).shiftRight(64).longValueExact();
        int[] salts = {0x243f6a89, 0x85a308d3};
        for (int i = 0; i < probes; i++) {
            positions[i] = blocked ? 512 * block + ((int) h * salts[i] >>> 23)
                    : (hash[0] + i * hash[1] & Long.MAX_VALUE) % (64 * units);
        }
        return positions;
    }

    private interface Action {
        void run() throws Exception;
    }

    private static void throwing(Class<?> kind, Action action, String says) throws IOException {
        try {
            action.run();
        } catch (Exception e) {
            holds(kind.isInstance(e), "another exception: " + e);
            holds(e.getMessage().contains(says), "`" + says + "` is not in: " + e.getMessage());
            return;
        }
        throw new AssertionError("no " + kind.getSimpleName() + " about `" + says + "`");
    }

    private static void refused(Path copy, byte[] bytes, String says) throws IOException {
        // A new file each time: some file systems wait for the disk when one is written over.
        Files.deleteIfExists(copy);
        Files.write(copy, bytes);
        throwing(BloomsdayFilter.UnsoundException.class, () -> {
            try {
                BloomsdayFilter.open(copy);
            } catch (BloomsdayFilter.UnsoundException e) {
                holds(e.getMessage().startsWith(copy + " is no blob that this class can look up in: "), e.getMessage());
                throw e;
            }
        }, says);
    }

    /** Puts a fitting digest behind the bytes. */
    private static byte[] seal(byte[] bytes) {
        BloomsdayFilter.Blake3 hasher = new BloomsdayFilter.Blake3();
        hasher.update(bytes, 0, bytes.length - 32);
        System.arraycopy(hasher.finish(), 0, bytes, bytes.length - 32, 32);
        return bytes;
    }

    private static Path replace(Path file, byte[] bytes) throws IOException {
        Path next = file.resolveSibling("next");
        Files.write(next, bytes);
        return Files.move(next, file, StandardCopyOption.ATOMIC_MOVE);
    }

    private static void delete(Path folder) throws IOException {
        try (Stream<Path> files = Files.walk(folder)) {
            for (Path path : (Iterable<Path>) files.sorted(Comparator.reverseOrder())::iterator) {
                Files.delete(path);
            }
        }
    }

    /** The ID of a user in the golden blobs. */
    private static String user(long n) {
        long mixed = n * 0x9e3779b97f4a7c15L ^ 0x0123456789abcdefL;
        return String.format("%016x%016x", mixed, n);
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte b : bytes) {
            text.append(String.format("%02x", b));
        }
        return text.toString();
    }

    private static void same(Object expected, Object got, String what) {
        if (!expected.equals(got)) {
            throw new AssertionError(what + ": expected " + expected + ", got " + got);
        }
    }

    private static void holds(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
