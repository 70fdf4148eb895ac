// SPDX-License-Identifier: MIT
//
// Coroutines of C++20 that are resumed by threads which share one epoll.
//
// A coroutine that has nothing to receive leaves its address with the epoll, for one event
// (EPOLLONESHOT); whichever thread collects the event resumes it. The channels are objects of the
// program. To compare, the same executor is compiled a second time for the kernel's epoll, with an
// eventfd for each channel: the two differ in the classes Objects and Eventfds alone.
//
// 100 pairs of coroutines play ping-pong on 4 threads, with both in turn.
//
//   executor [ROUNDS [TRIPS]]   TRIPS there and back for each pair, with eventfds a tenth of it

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <thread>
#include <vector>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <pollux/epoll.h>
#include <pollux/file.h>

namespace
{

constexpr int threads = 4;
constexpr int pairs = 100;

void check(bool right, const char *what)
{
	if (!right) {
		std::perror(what);
		std::exit(1);
	}
}

// An epoll of Pollux, and channels that are objects in it.
class Objects
{
      public:
	struct Channel {
		pollux_file file;
		std::atomic<uint32_t> balls;
	};

	Objects()
	{
		check(pollux_ep_new(&ep, nullptr) == 0, "pollux_ep_new");
	}

	~Objects()
	{
		pollux_ep_put(ep);
		pollux_quiesce();
	}

	Objects(const Objects &) = delete;
	Objects &operator=(const Objects &) = delete;

	void open(Channel &c)
	{
		epoll_event nothing = {};

		c.balls = 0;
		pollux_file_init(&c.file, &ops);
		check(pollux_ep_ctl(ep, EPOLL_CTL_ADD, &c.file, 0, &nothing) == 0, "ADD");
	}

	void close(Channel &c)
	{
		pollux_file_put(&c.file);
	}

	void send(Channel &c)
	{
		c.balls.fetch_add(1, std::memory_order_release);
		pollux_file_wake(&c.file, EPOLLIN);
	}

	bool take(Channel &c)
	{
		return c.balls.exchange(0, std::memory_order_acquire) != 0;
	}

	// The event comes once; also if the channel is ready already.
	void arm(Channel &c, void *who)
	{
		epoll_event ev = {};

		ev.events = EPOLLIN | EPOLLONESHOT;
		ev.data.ptr = who;
		check(pollux_ep_ctl(ep, EPOLL_CTL_MOD, &c.file, 0, &ev) == 0, "MOD");
	}

	// 0 at the end.
	int wait(epoll_event *ev, int max)
	{
		int n = pollux_ep_wait(ep, ev, max, POLLUX_FOREVER);

		check(n > 0 || n == -ESHUTDOWN, "pollux_ep_wait");
		return n > 0 ? n : 0;
	}

	void stop()
	{
		pollux_ep_shutdown(ep);
	}

      private:
	static uint32_t poll(pollux_file *f, uint32_t)
	{
		Channel *c = pollux_container_of(f, Channel, file);

		return c->balls.load(std::memory_order_acquire) ? EPOLLIN : 0u;
	}

	// All but these is 0, now and in versions to come.
	static pollux_file_ops make_ops()
	{
		pollux_file_ops o = {};

		o.size = sizeof(o);
		o.poll = poll;
		return o;
	}

	inline static const pollux_file_ops ops = make_ops();
	pollux_ep *ep;
};

// The kernel's epoll, and channels that are eventfds.
class Eventfds
{
      public:
	struct Channel {
		int fd;
	};

	Eventfds() : ep(epoll_create1(EPOLL_CLOEXEC)), stopped(eventfd(0, EFD_CLOEXEC))
	{
		epoll_event ev = {};

		ev.events = EPOLLIN;
		check(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, stopped, &ev) == 0, "epoll");
	}

	~Eventfds()
	{
		::close(ep);
		::close(stopped);
	}

	Eventfds(const Eventfds &) = delete;
	Eventfds &operator=(const Eventfds &) = delete;

	void open(Channel &c)
	{
		epoll_event nothing = {};

		c.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		check(epoll_ctl(ep, EPOLL_CTL_ADD, c.fd, &nothing) == 0, "ADD");
	}

	void close(Channel &c)
	{
		::close(c.fd);
	}

	void send(Channel &c)
	{
		check(eventfd_write(c.fd, 1) == 0, "eventfd_write");
	}

	bool take(Channel &c)
	{
		eventfd_t n;

		return eventfd_read(c.fd, &n) == 0;
	}

	void arm(Channel &c, void *who)
	{
		epoll_event ev = {};

		ev.events = EPOLLIN | EPOLLONESHOT;
		ev.data.ptr = who;
#ifdef __SANITIZE_THREAD__
		armed.fetch_add(1, std::memory_order_release);
#endif
		check(epoll_ctl(ep, EPOLL_CTL_MOD, c.fd, &ev) == 0, "MOD");
	}

	int wait(epoll_event *ev, int max)
	{
		int n = epoll_wait(ep, ev, max, -1);

		check(n > 0, "epoll_wait");
#ifdef __SANITIZE_THREAD__
		armed.load(std::memory_order_acquire);
#endif
		return std::any_of(ev, ev + n, [](auto &e) { return !e.data.ptr; }) ? 0 : n;
	}

	void stop()
	{
		check(eventfd_write(stopped, 1) == 0, "eventfd_write");
	}

      private:
	int ep, stopped;
#ifdef __SANITIZE_THREAD__
	// It does not know that the kernel's MOD comes before its event. It knows it of Pollux.
	std::atomic<unsigned int> armed = 0;
#endif
};

// A coroutine that begins at once, and frees itself at its end.
struct Task {
	struct promise_type {
		Task get_return_object()
		{
			return {};
		}
		std::suspend_never initial_suspend() noexcept
		{
			return {};
		}
		std::suspend_never final_suspend() noexcept
		{
			return {};
		}
		void return_void()
		{
		}
		void unhandled_exception()
		{
			std::terminate();
		}
	};
};

// co_await Readable{side, c}: the coroutine goes on once something is in the channel.
template <class Side> struct Readable {
	Side &side;
	typename Side::Channel &channel;

	bool await_ready() const noexcept
	{
		return false;
	}

	// Another thread may resume the coroutine, and end it, before arm returns.
	void await_suspend(std::coroutine_handle<> h)
	{
		side.arm(channel, h.address());
	}

	void await_resume() const noexcept
	{
	}
};

// Sends a ball to `yours` for each that comes to `mine`. The last player to end stops the executor.
template <class Side>
Task play(Side &side, typename Side::Channel &mine, typename Side::Channel &yours, long trips,
	  std::atomic<int> &players)
{
	for (long i = 0; i < trips; i++) {
		while (!side.take(mine))
			co_await Readable<Side>{side, mine};
		side.send(yours);
	}
	if (--players == 0)
		side.stop();
}

// Resumes coroutines until somebody stops it.
template <class Side> void run(Side &side)
{
	epoll_event ev[16];

	while (int n = side.wait(ev, 16))
		for (int i = 0; i < n; i++)
			std::coroutine_handle<>::from_address(ev[i].data.ptr).resume();
}

// Millions of balls a second, and microseconds of CPU for each.
struct Speed {
	double rate, cpu;
};

double cpu_us()
{
	return 1e6 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

template <class Side> Speed measure(long trips)
{
	std::vector<typename Side::Channel> channels(2 * pairs);
	std::vector<std::thread> pool;
	std::atomic<int> players = 2 * pairs;
	Side side;

	for (auto &c : channels)
		side.open(c);
	for (int i = 0; i < pairs; i++) {
		play(side, channels[2 * i], channels[2 * i + 1], trips, players);
		play(side, channels[2 * i + 1], channels[2 * i], trips, players);
	}
	auto begin = std::chrono::steady_clock::now();
	double cpu = cpu_us();
	for (int i = 0; i < pairs; i++)
		side.send(channels[2 * i]);
	for (int i = 0; i < threads; i++)
		pool.emplace_back([&side] { run(side); });
	for (auto &t : pool)
		t.join();
	std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
	double balls = 2.0 * pairs * static_cast<double>(trips);
	Speed speed = {balls / took.count(), (cpu_us() - cpu) / balls};

	for (auto &c : channels)
		side.close(c);
	// Each player has sent one for each that came.
	check(players == 0, "players are left");
	return speed;
}

void say(const char *what, std::vector<double> &ratios)
{
	std::sort(ratios.begin(), ratios.end());
	std::printf("%s: %.1f (%.1f to %.1f)\n", what, ratios[ratios.size() / 2], ratios.front(),
		    ratios.back());
}

} // namespace

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 3;
	long trips = argc > 2 ? std::max(std::atol(argv[2]), 10l) : 5000;
	std::vector<double> rates, cpus;

	std::printf("%d coroutines on %d threads\n", 2 * pairs, threads);
	for (int i = 0; i < rounds; i++) {
		Speed eventfds = measure<Eventfds>(trips / 10);
		Speed objects = measure<Objects>(trips);

		std::printf("%ld balls by objects: %.2f million/s, %.2f us of CPU each; "
			    "%ld by eventfds: %.2f, %.2f\n",
			    2 * pairs * trips, objects.rate, objects.cpu, 2 * pairs * (trips / 10),
			    eventfds.rate, eventfds.cpu);
		rates.push_back(objects.rate / eventfds.rate);
		cpus.push_back(eventfds.cpu / objects.cpu);
	}
	say("balls a second, objects / eventfds", rates);
	say("CPU, eventfds / objects", cpus);
	return 0;
}
