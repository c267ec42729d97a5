import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.EnumSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream.SyncFlag;

/**
 * A real HDFS for tests: Hadoop's own NameNode and two DataNodes in one process.
 *
 * <pre>java Hdfs FOLDER PORT</pre>
 *
 * FOLDER keeps everything, so that the process can be killed and started again on it. It prints "ok" when it can be
 * used and after each command on its standard input, and ends with that input.
 */
public final class Hdfs {
    private static final int DATA_NODES = 2;

    private final MiniDFSCluster cluster;
    private MiniDFSCluster.DataNodeProperties away;
    private HdfsDataOutputStream open;

    private Hdfs(MiniDFSCluster cluster) {
        this.cluster = cluster;
    }

    public static void main(String[] args) throws Exception {
        File folder = new File(args[0]);
        boolean format = !new File(folder, "formatted").exists();
        Configuration settings = new Configuration();
        settings.setInt("dfs.replication", DATA_NODES);
        // Many blocks in small files.
        settings.setLong("dfs.blocksize", 1 << 20);
        // A DataNode that is away is noticed within seconds.
        settings.setInt("dfs.heartbeat.interval", 1);
        settings.setInt("dfs.namenode.heartbeat.recheck-interval", 1000);
        // After a start there is no more waiting than for the DataNodes.
        settings.setInt("dfs.namenode.safemode.extension", 0);
        settings.setBoolean("dfs.permissions.enabled", true);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings, folder)
                .nameNodePort(Integer.parseInt(args[1]))
                .numDataNodes(DATA_NODES)
                .format(format)
                .build();
        cluster.waitActive();
        new File(folder, "formatted").createNewFile();
        System.out.println("ok");
        Hdfs hdfs = new Hdfs(cluster);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = commands.readLine()) != null;) {
            try {
                hdfs.run(line.split("\t"));
                System.out.println("ok");
            } catch (Exception e) {
                System.out.println("failed: " + e);
            }
        }
        // An orderly end would take seconds, and the folder goes with the test.
        Runtime.getRuntime().halt(0);
    }

    private void run(String[] words) throws Exception {
        FileSystem files = cluster.getFileSystem();
        switch (words[0]) {
            case "put":
                files.copyFromLocalFile(new Path(words[1]), new Path(words[2]));
                break;
            case "chmod":
                files.setPermission(new Path(words[2]), new FsPermission(words[1]));
                break;
            case "put-open":
                // As a program that still writes: what it has written so far can be read.
                byte[] bytes = java.nio.file.Files.readAllBytes(java.nio.file.Path.of(words[1]));
                open = (HdfsDataOutputStream) files.create(new Path(words[2]));
                open.write(bytes);
                open.hsync(EnumSet.of(SyncFlag.UPDATE_LENGTH));
                break;
            case "age":
                long then = System.currentTimeMillis() - Long.parseLong(words[1]) * 24 * 3600 * 1000;
                files.setTimes(new Path(words[2]), then, -1);
                break;
            case "list":
                var found = files.listFiles(new Path(words[1]), true);
                while (found.hasNext()) {
                    System.out.println(found.next().getPath().toUri().getPath());
                }
                break;
            case "stop-datanode":
                away = cluster.stopDataNode(0);
                break;
            case "start-datanode":
                cluster.restartDataNode(away, true);
                cluster.waitActive();
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }
}
