#include "persistent.hpp"
#include "scenarios.hpp"

#include <softverbs/softverbs.h>

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

/// Clients that count with a server, while devices, ports and completion queues fail. A program
/// that hears of a device's end ends, and its host runs it again. After other errors it goes on.
struct faulty : cast {
  faulty(sim::world& of, unsigned count) : cast{of, count}, reached(count), used(count) {}

  static constexpr unsigned goal = 20;
  static constexpr std::uint32_t buffers = 64;
  static constexpr std::uint32_t few_buffers = 60;

  std::vector<unsigned> reached;    ///< the sums of each client
  std::vector<const ibv_qp*> used;  ///< a queue pair of each host; null: there is none

  [[nodiscard]] bool are_all_done() const {
    return std::all_of(reached.begin() + 1, reached.end(), [](unsigned n) { return n == goal; });
  }
  [[nodiscard]] bool is_done(unsigned host) const {
    return host == 0 ? are_all_done() : reached[host] == goal;
  }

  /// Names the queue pair of a conversation while it lasts.
  class user {
   public:
    user(faulty& all, unsigned host, connection& conn) : all_{all}, host_{host} {
      all_.used[host_] = conn.verbs().native_handle();
    }
    user(const user&) = delete;
    ~user() { all_.used[host_] = nullptr; }

   private:
    faulty& all_;
    const unsigned host_;
  };

  task<> echo(connection conn) {
    const user named{*this, 0, conn};
    message_stream stream{std::move(conn)};
    for (;;) {
      const stream_message m = co_await stream.receive();
      co_await stream.send(m.bytes(), m.immediate());
    }
  }

  task<> watch_low_marks(shared_receives& pool) {
    for (;;) {
      co_await pool.runs_low(few_buffers);
      co_await sleep_for(10ms);
    }
  }

  task<> serve(runtime& rt) {
    shared_receives& pool =
        rt.share_receives({.buffers = buffers, .buffer_bytes = kib, .share_min = 8});
    listener listening = rt.listen(at(0), {}, {.receives_from = &pool});
    co_await when_any(
        cordma::serve(listening, [this](connection conn) { return echo(std::move(conn)); }),
        watch_low_marks(pool), until([&] { return are_all_done(); }));
  }

  task<> serve_all(runtime& rt) {
    while (!are_all_done()) {
      static_cast<void>(co_await as_result(serve(rt)));
      co_await sleep_for(5ms);
    }
  }

  task<> count_once(runtime& rt, unsigned self) {
    connection conn = co_await rt.connect(at(0), {.connect_timeout = 1s});
    const user named{*this, self, conn};
    message_stream stream{std::move(conn)};
    while (reached[self] < goal) {
      const part sent = any_part(w, 4 * kib);
      co_await stream.send(sent.bytes(), reached[self]);
      const stream_message m = co_await with_timeout(stream.receive(), 2s);
      require(m.immediate() == reached[self] && sent.is_in(m.bytes()), "an answer: other bytes");
      ++reached[self];
      co_await sleep_for(moment(100ms));
    }
    co_await stream.close();
  }

  task<> count(runtime& rt, unsigned self) {
    while (reached[self] < goal) {
      // A port, a queue or a peer may work again.
      static_cast<void>(co_await as_result(count_once(rt, self)));
      co_await sleep_for(5ms);
    }
  }

  task<> device_gone(runtime& rt) {
    for (;;) {
      const verbs::async_event event = co_await rt.next_device_event();
      if (event.kind == IBV_EVENT_DEVICE_FATAL || event.kind == IBV_EVENT_CQ_ERR) co_return;
    }
  }

  task<> live(runtime& rt, unsigned self) {
    task<> work = self == 0 ? serve_all(rt) : count(rt, self);
    co_await when_any(device_gone(rt), std::move(work));
  }
};

void overrun(const faulty& all, unsigned number) {
  const ibv_qp* const qp = all.used[number];
  if (qp == nullptr) return;
  ibv_async_event event{.element = {}, .event_type = IBV_EVENT_CQ_ERR};
  event.element.cq = qp->send_cq;
  all.require(::softverbs_raise_async_event(qp->context, &event) == 0, "an event is not raised");
}

/// Makes something of a host's device fail again and again, until the time is over.
void break_device(const std::shared_ptr<faulty>& all, unsigned number, time_point until) {
  sim::world& w = all->w;
  const duration pause = all->moment(600ms), lasts = all->moment(300ms);
  if (w.now() + pause + lasts > until) return;
  w.after(pause, [all, number, until, lasts, &w] {
    sim::host& host = *all->hosts[number];
    if (!host.is_running()) return break_device(all, number, until);
    const auto kind = w.random(2);
    if (kind == 0) host.fail_device();
    if (kind == 1) overrun(*all, number);
    if (kind == 2) host.set_port(false);
    w.after(lasts, [all, number, until, kind, &host] {
      if (kind == 2) host.set_port(true);
      break_device(all, number, until);
    });
  });
}

}  // namespace

void play_device_errors(sim::world& w) {
  const auto all = std::make_shared<faulty>(w, 2 + unsigned(w.random(1)));
  for (unsigned n = 0; n < all->size(); ++n) {
    keep_running(all, n);
    break_device(all, n, w.now() + faults_time);
  }
  w.after(faults_time, [&w] { w.heal(); });
  keep_watch(all);
  w.run(faults_time + recovery_time_max);
  all->require(all->are_all_done(), "a client did not reach its goal");
}

}  // namespace cordma::test
