// SPDX-License-Identifier: MIT
// What java.py runs: selectors that are woken from other threads, an echo server on sockets and
// one on pipes, asynchronous channels. Prints one line for each result and each rate.

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.AsynchronousServerSocketChannel;
import java.nio.channels.AsynchronousSocketChannel;
import java.nio.channels.Pipe;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

public class Nio {
	static final int SCALE = Integer.parseInt(System.getenv().getOrDefault("SCALE", "1"));

	static void result(String name, Object value) {
		System.out.println("result\t" + name + "\t" + value);
	}

	static void rate(String name, double count, long began) {
		System.out.println("rate\t" + name + "\t" + count * 1e9 / (System.nanoTime() - began));
	}

	// Whoever sleeps is woken by the one that comes: there is no other that could make up for it.
	static void sleepers() throws Exception {
		int woken = 0, rounds = 60;
		try (Selector selector = Selector.open()) {
			for (; woken < rounds; woken++) {
				Thread other = new Thread(() -> {
					try {
						Thread.sleep(3);
					} catch (InterruptedException e) {
						// nobody does
					}
					selector.wakeup();
				});
				other.start();
				long start = System.nanoTime();
				selector.select(10000);
				if (System.nanoTime() - start > 9_000_000_000L)
					break;
				other.join();
			}
		}
		result("sleepers woken", woken);
	}

	// Threads queue work and wake the selector; each waits for its answer before the next.
	static void wakeups() throws Exception {
		int threads = 4, rounds = 3000 * SCALE;
		ConcurrentLinkedQueue<Semaphore> queue = new ConcurrentLinkedQueue<>();
		AtomicBoolean over = new AtomicBoolean();
		try (Selector selector = Selector.open()) {
			AtomicInteger served = new AtomicInteger();
			Thread loop = new Thread(() -> {
				try {
					while (!over.get()) {
						// Long: a wake-up that gets lost is seen in the rate.
						selector.select(5000);
						Semaphore s;
						while ((s = queue.poll()) != null) {
							served.incrementAndGet();
							s.release();
						}
					}
				} catch (IOException e) {
					e.printStackTrace();
				}
			});
			loop.start();
			List<Thread> others = new ArrayList<>();
			long began = System.nanoTime();
			for (int t = 0; t < threads; t++) {
				Thread other = new Thread(() -> {
					Semaphore mine = new Semaphore(0);
					for (int i = 0; i < rounds; i++) {
						queue.add(mine);
						selector.wakeup();
						mine.acquireUninterruptibly();
					}
				});
				others.add(other);
				other.start();
			}
			for (Thread t : others)
				t.join();
			rate("wakeups", (double) threads * rounds, began);
			over.set(true);
			selector.wakeup();
			loop.join();
			result("wakeups", served.get());

			// A wake-up before a select makes that one return at once, and only that one.
			selector.wakeup();
			selector.wakeup();
			long start = System.nanoTime();
			selector.select(60000);
			boolean quick = System.nanoTime() - start < 30_000_000_000L;
			result("wakeup before select", quick + " " + selector.selectNow());
			start = System.nanoTime();
			selector.select(50);
			result("select waits", System.nanoTime() - start >= 49_000_000L);
			// Interruption and closing end a select.
			for (int how = 0; how < 2; how++) {
				Selector s = how == 0 ? selector : Selector.open();
				CountDownLatch ended = new CountDownLatch(1);
				Thread sleeper = new Thread(() -> {
					try {
						s.select(60000);
					} catch (Exception e) {
						// closed
					}
					ended.countDown();
				});
				sleeper.start();
				while (sleeper.getState() != Thread.State.RUNNABLE)
					Thread.onSpinWait();
				Thread.sleep(20);
				if (how == 0)
					sleeper.interrupt();
				else
					s.close();
				result("ended by " + (how == 0 ? "interrupt" : "close"),
					ended.await(30, TimeUnit.SECONDS));
			}
		}
	}

	static void echo() throws Exception {
		int clients = 6, rounds = 500 * SCALE;
		Selector selector = Selector.open();
		ServerSocketChannel server = ServerSocketChannel.open();
		server.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
		server.configureBlocking(false);
		server.register(selector, SelectionKey.OP_ACCEPT);
		Thread loop = new Thread(() -> {
			ByteBuffer buffer = ByteBuffer.allocateDirect(65536);
			int closed = 0;
			try {
				while (closed < clients) {
					selector.select();
					var keys = selector.selectedKeys().iterator();
					while (keys.hasNext()) {
						SelectionKey key = keys.next();
						keys.remove();
						if (key.isAcceptable()) {
							SocketChannel c = server.accept();
							if (c != null) {
								c.configureBlocking(false);
								c.register(selector, SelectionKey.OP_READ);
							}
							continue;
						}
						SocketChannel c = (SocketChannel) key.channel();
						buffer.clear();
						if (c.read(buffer) < 0) {
							c.close();
							closed++;
							continue;
						}
						buffer.flip();
						while (buffer.hasRemaining())
							c.write(buffer);
					}
				}
				selector.close();
				server.close();
			} catch (IOException e) {
				e.printStackTrace();
			}
		});
		loop.start();
		AtomicInteger good = new AtomicInteger();
		long began = System.nanoTime();
		List<Thread> threads = new ArrayList<>();
		for (int k = 0; k < clients; k++) {
			int me = k;
			Thread t = new Thread(() -> {
				try (SocketChannel c = SocketChannel.open(server.getLocalAddress())) {
					for (int i = 0; i < rounds; i++) {
						byte[] said = (me + ":" + i + ":" + "x".repeat(i % 900)).getBytes();
						c.write(ByteBuffer.wrap(said));
						ByteBuffer back = ByteBuffer.allocate(said.length);
						while (back.hasRemaining() && c.read(back) >= 0)
							;
						if (java.util.Arrays.equals(said, back.array()))
							good.incrementAndGet();
					}
				} catch (IOException e) {
					e.printStackTrace();
				}
			});
			threads.add(t);
			t.start();
		}
		for (Thread t : threads)
			t.join();
		rate("echo", (double) clients * rounds, began);
		loop.join();
		result("echo", good.get());
	}

	static void pipes() throws Exception {
		int rounds = 3000 * SCALE;
		Pipe there = Pipe.open(), back = Pipe.open();
		there.source().configureBlocking(false);
		Selector selector = Selector.open();
		there.source().register(selector, SelectionKey.OP_READ);
		Thread loop = new Thread(() -> {
			ByteBuffer b = ByteBuffer.allocateDirect(4096);
			try {
				for (boolean end = false; !end;) {
					selector.select();
					selector.selectedKeys().clear();
					b.clear();
					end = there.source().read(b) < 0;
					b.flip();
					while (b.hasRemaining())
						back.sink().write(b);
				}
				back.sink().close();
				selector.close();
			} catch (IOException e) {
				e.printStackTrace();
			}
		});
		loop.start();
		long sum = 0, began = System.nanoTime();
		ByteBuffer b = ByteBuffer.allocate(8);
		for (int i = 0; i < rounds; i++) {
			b.clear();
			b.putLong(i).flip();
			there.sink().write(b);
			b.clear();
			while (b.hasRemaining())
				back.source().read(b);
			sum += b.flip().getLong();
		}
		rate("pipes", rounds, began);
		there.sink().close();
		loop.join();
		b.clear();
		result("pipes", sum + " " + back.source().read(b));
	}

	static void asynchronous() throws Exception {
		AsynchronousServerSocketChannel server = AsynchronousServerSocketChannel.open()
			.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
		AsynchronousSocketChannel client = AsynchronousSocketChannel.open();
		var connected = client.connect(server.getLocalAddress());
		AsynchronousSocketChannel peer = server.accept().get(30, TimeUnit.SECONDS);
		connected.get(30, TimeUnit.SECONDS);
		int sum = 0;
		for (int i = 0; i < 1000 * SCALE; i++) {
			ByteBuffer in = ByteBuffer.allocate(4);
			var read = peer.read(in);
			client.write(ByteBuffer.allocate(4).putInt(i).flip()).get(30, TimeUnit.SECONDS);
			if (read.get(30, TimeUnit.SECONDS) == 4)
				sum += in.flip().getInt();
		}
		result("asynchronous", sum);
		client.close();
		peer.close();
		server.close();
	}

	static void children() throws Exception {
		StringBuilder all = new StringBuilder();
		for (int i = 0; i < 10; i++) {
			Process p = new ProcessBuilder("sh", "-c", "cat; exit " + i).start();
			p.getOutputStream().write(("to child " + i + "\n").getBytes());
			p.getOutputStream().close();
			all.append(new String(p.getInputStream().readAllBytes(), StandardCharsets.UTF_8));
			all.append(p.waitFor());
		}
		result("children", all.toString().replace('\n', ' '));
	}

	public static void main(String[] args) throws Exception {
		wakeups();
		sleepers();
		echo();
		pipes();
		asynchronous();
		children();
		String maps = Files.readString(Path.of("/proc/self/maps"));
		System.out.println("mapped\t" + maps.contains("libpollux-preload"));
		System.out.println("end");
	}
}
