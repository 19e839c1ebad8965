#include <cordma/runtime/metrics.hpp>

#include "base/check_option.hpp"
#include "base/failures.hpp"
#include "base/fork.hpp"
#include "connection/addresses.hpp"
#include "http.hpp"
#include "io/host_calls.hpp"
#include "io/stream_channel.hpp"

#include <cordma/base/unique_fd.hpp>
#include <cordma/coro/semaphore.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/detail/base/assert.hpp>
#include <cordma/detail/base/counter.hpp>
#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/runtime/runtime_group.hpp>

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace cordma {
namespace {

constexpr std::string_view page_path = "/metrics";
constexpr std::string_view page_type = "text/plain; version=0.0.4; charset=utf-8";
constexpr std::string_view error_type = "text/plain; charset=utf-8";
constexpr int backlog = 16;
/// Pause after a failure of accept(2), which would fail again at once.
constexpr std::chrono::milliseconds accept_pause{50};
/// Bytes that are read and dropped after the answer. Closing with unread bytes resets the
/// connection, and the client might never see the answer.
constexpr std::size_t drained_bytes_max = 65536;

void check_reach(const socket_address& where, const metrics_server::options& options) {
  if (options.insecure || where.is_loopback()) return;
  detail::throw_failure(
      errc::not_authenticated, "metrics_server",
      detail::detail_text(
          "%s: whoever reaches it could read: set metrics_server::options::insecure",
          where.to_string().c_str()));
}

endpoint checked(const endpoint& local) {
  if (local.kind != endpoint::bootstrap::rdma_cm) return local;
  detail::throw_failure(errc::not_supported, "metrics_server",
                        "HTTP needs a TCP or a Unix socket, not rdma_cm");
}

/// A simulated host has no threads, and its sockets are not the kernel's.
runtime& checked(runtime& of) {
  if (of.executor().reactor().host().has_threads()) return of;
  detail::throw_failure(errc::not_supported, "metrics_server",
                        "a simulated host has no threads: call to_prometheus(rt.metrics())");
}

/// Returns true if the peer is a process of this user or of root.
bool is_own_user(int fd) noexcept {
  ucred peer{};
  socklen_t size_bytes = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size_bytes) == 0 &&
         (peer.uid == 0 || peer.uid == ::geteuid());
}

std::string page_of(runtime_group& of) {
  std::vector<std::string> numbers;
  numbers.reserve(of.size());
  for (unsigned n = 0; n < of.size(); ++n) numbers.push_back(std::to_string(n));
  std::vector<labelled_metrics> all;
  all.reserve(of.size());
  for (unsigned n = 0; n < of.size(); ++n) all.push_back({of[n].metrics(), {"thread", numbers[n]}});
  return to_prometheus(all);
}

/// Blocks all signals while it lives: a thread that is made meanwhile handles none of the
/// program's.
class signals_blocked {
 public:
  signals_blocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  signals_blocked(signals_blocked&&) = delete;
  ~signals_blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

/// Lets the calling thread run where the process's first thread may. The thread that made this one
/// may be pinned to a CPU that is its own.
void leave_pinned_cpu() noexcept {
  cpu_set_t allowed;
  if (::sched_getaffinity(::getpid(), sizeof allowed, &allowed) == 0)
    static_cast<void>(::sched_setaffinity(0, sizeof allowed, &allowed));
}

/// The right to one of the server's connections.
using permit = std::unique_ptr<semaphore, decltype([](semaphore* of) { of->release(); })>;

struct client : list_hook<client> {
  explicit client(stream_socket socket) : channel{std::move(socket)} {}
  stream_channel channel;
};

}  // namespace

struct [[gnu::visibility("hidden")]] metrics_server::state {
  state(const endpoint& local, page contents, const metrics_server::options& options);
  state(state&&) = delete;
  ~state();

  task<> serve_until_stopped();
  task<> accept_all();
  task<> accept(scope& conversations);
  task<> serve(stream_socket socket, permit);
  task<> talk(client& with, bool& is_answered);
  task<> answer(client& with, detail::http_request to);
  void make_room() noexcept;

  const page contents;
  const time_span connection_timeout;
  const std::uint32_t process = detail::process_epoch();  ///< Process that made it.
  cordma::executor executor{{.backend = io_backend::epoll}};
  stream_listener sockets;
  const endpoint local;
  /// Only an abstract Unix name lets every user of the host connect.
  const bool checks_user;
  const unique_fd stop{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  counter served, refused, dropped;  // The thread writes them.
  semaphore room{connections_max};
  intrusive_list<client> clients;  // The oldest first.
  std::jthread thread;
};

metrics_server::state::state(const endpoint& at, page made, const metrics_server::options& options)
    : contents{std::move(made)},
      connection_timeout{options.timeout},
      sockets{executor,
              [&] {
                check_timeout("metrics_server::options", "timeout", options.timeout);
                const socket_address where = detail::listening_address(executor, checked(at));
                check_reach(where, options);
                return where;
              }(),
              backlog},
      local{detail::endpoint_of(sockets.local_address())},
      checks_user{local.host.starts_with('@')} {
  if (!stop.is_open()) throw error{errno_failure(errno, "eventfd")};
  const signals_blocked here;
  try {
    thread = std::jthread{[this] {
      static_cast<void>(::pthread_setname_np(::pthread_self(), "cordma-metrics"));
      leave_pinned_cpu();
      executor.run(serve_until_stopped());
    }};
  } catch (const std::system_error& e) {
    throw error{errno_failure(e.code().value(), "pthread_create", {},
                              "fewer threads, or a higher limit (ulimit -u)")};
  }
}

metrics_server::state::~state() {
  CORDMA_ASSERT(process == detail::process_epoch(),
                "a metrics_server is not destroyed in the child of a fork: its thread is the "
                "parent's");
  static_cast<void>(::eventfd_write(stop.get(), 1));
  if (thread.joinable()) thread.join();
}

task<> metrics_server::state::serve_until_stopped() {
  scope work{executor};
  work.spawn(accept_all());
  co_await readable(executor, stop.get());
  work.request_stop();
  co_await work.join();
  sockets.close();
}

task<> metrics_server::state::accept_all() {
  scope conversations{executor};
  for (bool has_failed = false, is_stopped = false; !is_stopped;) {
    try {
      if (std::exchange(has_failed, false)) co_await executor.sleep_for(accept_pause);
      co_await accept(conversations);
    } catch (const cancelled&) {
      is_stopped = true;
    } catch (...) {  // No descriptor or no memory: the client stays in the backlog.
      has_failed = true;
    }
  }
  conversations.request_stop();
  co_await conversations.join();
}

task<> metrics_server::state::accept(scope& conversations) {
  co_await readable(executor, sockets.fd());
  make_room();
  co_await room.acquire();
  permit one{&room};
  stream_socket socket = co_await sockets.accept();
  conversations.spawn(serve(std::move(socket), std::move(one)));
}

/// Ends the oldest connection if there is no room for another: silent clients keep nobody out.
void metrics_server::state::make_room() noexcept {
  if (room.available() > 0 || clients.empty()) return;
  const stream_socket& oldest = clients.front().channel.socket();
  static_cast<void>(oldest.calls().shut_down(oldest.fd(), detail::socket_side::reading));
  static_cast<void>(oldest.calls().shut_down(oldest.fd(), detail::socket_side::writing));
}

/// Serves one client; whatever goes wrong ends its connection alone.
task<> metrics_server::state::serve(stream_socket socket, permit) {
  bool is_answered = false;
  try {
    client with{std::move(socket)};
    clients.push_back(with);
    co_await with_timeout(talk(with, is_answered), connection_timeout);
  } catch (const cancelled&) {
    throw;
  } catch (...) {
    if (!is_answered) dropped.add();
  }
}

task<> metrics_server::state::talk(client& with, bool& is_answered) {
  std::array<std::byte, 1024> chunk{};
  std::string request;
  std::size_t head_bytes = 0;
  while (head_bytes == 0 && request.size() < request_bytes_max) {
    const std::size_t n = co_await read_some(with.channel, chunk);
    if (n == 0) detail::throw_failure(errc::disconnected, "recv", "a request ended in its head");
    request.append(reinterpret_cast<const char*>(chunk.data()), n);
    head_bytes = detail::http_head_bytes(request);
  }
  if (head_bytes == 0 || head_bytes > request_bytes_max) {
    co_await answer(with, {.status = 431});
  } else if (checks_user && !is_own_user(with.channel.socket().fd())) {
    co_await answer(with, {.status = 403});
  } else {
    const std::string_view head = std::string_view{request}.substr(0, head_bytes);
    co_await answer(with, detail::read_http_head(head, page_path));
  }
  is_answered = true;
  with.channel.end_writing();
  std::size_t drained = 0;
  while (drained < drained_bytes_max) {
    const std::size_t n = co_await read_some(with.channel, chunk);
    if (n == 0) break;
    drained += n;
  }
}

task<> metrics_server::state::answer(client& with, detail::http_request to) {
  std::string body;
  if (to.status == 200) {
    try {
      body = contents();
    } catch (const std::exception& e) {
      to.status = 500;
      body = e.what();
    } catch (...) {
      to.status = 500;
    }
  }
  if (to.status != 200) {
    if (to.status == 404) body = "The metrics are at /metrics.";
    if (to.status == 403) body = "Only the program's own user and root may read here.";
    body += '\n';
  }
  const std::string text = detail::http_answer(to, to.status == 200 ? page_type : error_type, body);
  co_await write_all(with.channel, std::as_bytes(std::span{text}));
  (to.status == 200 ? served : refused).add();
}

metrics_server::metrics_server(const endpoint& local, page contents, const options& how)
    : state_{std::make_unique<state>(local, std::move(contents), how)} {}

metrics_server::metrics_server(const endpoint& local, runtime& of, const options& how)
    : metrics_server{local, page{[rt = &checked(of)] { return to_prometheus(rt->metrics()); }},
                     how} {}

metrics_server::metrics_server(const endpoint& local, runtime_group& of, const options& how)
    : metrics_server{local, page{[group = &of] { return page_of(*group); }}, how} {}

metrics_server::~metrics_server() = default;

const endpoint& metrics_server::local_endpoint() const noexcept { return state_->local; }

metrics_server::counts metrics_server::counters() const noexcept {
  return {.served = state_->served.value(),
          .refused = state_->refused.value(),
          .dropped = state_->dropped.value()};
}

}  // namespace cordma
