// Whole connects with a key or certificates, through somebody on the path who changes the bytes.
#include "tally.hpp"

#include "connection/handshake.hpp"
#include "scenario/proofs.hpp"
#include "security/attack.hpp"
#include "support/connected_pair.hpp"
#include "support/held.hpp"
#include "support/leaks.hpp"
#include "support/messages_pass.hpp"
#include "support/raw_peer.hpp"
#include "support/soak.hpp"
#include "support/until.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <array>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::attempt;

namespace {

/// The bytes that one side has sent, and those that have come of them.
struct direction {
  /// Returns true for a byte that nobody reads: a start's minor version and reserved bytes
  /// (docs/handshake.md), and the least version of TLS's first record.
  [[nodiscard]] bool is_ignored(std::size_t at) const noexcept {
    const bool is_in_start = at < tls_at;
    return is_in_start ? at == 5 || (at >= 10 && at < 16) : at == tls_at + 2;
  }
  void add(const std::vector<std::byte>& bytes, const std::vector<std::byte>& after) {
    sent.insert(sent.end(), bytes.begin(), bytes.end());
    delivered.insert(delivered.end(), after.begin(), after.end());
    is_whole = true;
    for (std::size_t at = 0; at < sent.size() && is_whole; ++at) {
      const bool is_same = at < delivered.size() && (delivered[at] == sent[at] || is_ignored(at));
      is_whole = is_same;
    }
  }
  [[nodiscard]] bool is_untouched() const noexcept {
    return is_whole && delivered.size() == sent.size();
  }

  std::size_t tls_at;  ///< The first byte of TLS.
  std::vector<std::byte> sent{};
  std::vector<std::byte> delivered{};
  bool is_whole = true;  ///< All that was sent came, though more may have.
};

/// Carries the bytes between a client and a listener, and attacks one side's.
class relay {
 public:
  relay(runtime& rt, unique_fd of_client, const attempt& a)
      : executor_{rt.executor()},
        attempt_{a},
        attacker_{a},
        client_{stream_socket{executor_, std::move(of_client)}} {}

  task<> run(std::uint16_t port) {
    const test::raw_peer acceptor =
        co_await stream_socket::connect(executor_, socket_address::loopback(port));
    co_await when_all(carry(client_, acceptor, of_client), carry(acceptor, client_, of_listener));
  }
  [[nodiscard]] bool is_whole() const noexcept {
    return of_client.is_whole && of_listener.is_whole;
  }
  [[nodiscard]] bool is_untouched() const noexcept {
    return of_client.is_untouched() && of_listener.is_untouched();
  }
  [[nodiscard]] std::size_t carried() const noexcept {
    return of_client.sent.size() + of_listener.sent.size();
  }

  direction of_client{.tls_at = handshake::start_bytes};
  direction of_listener{.tls_at = 0};

 private:
  task<> carry(byte_channel& from, byte_channel& to, direction& path) {
    const bool is_attacked = attempt_.on_client == (&path == &of_client);
    try {
      std::array<std::byte, 4096> some{};
      for (;;) {
        const std::size_t n = co_await read_some(from, some);
        if (n == 0) break;
        const std::vector<std::byte> bytes{some.begin(), some.begin() + std::ptrdiff_t(n)};
        std::vector<std::byte> after = bytes;
        if (is_attacked) attacker_.change(path.sent.size(), after);
        path.add(bytes, after);
        co_await write_all(to, after);
        if (is_attacked && attacker_.has_cut()) break;
      }
    } catch (const error&) {
      // A side has gone, and the other is told.
    }
    to.end_writing();
  }

  cordma::executor& executor_;
  attempt attempt_;
  test::attacker attacker_;
  test::raw_peer client_;
};

std::string text_of(const failure& f) { return f.code ? f.to_string() : "completed"; }

/// Returns true for a failure that says what happened to a handshake.
bool is_clear(const failure& f) {
  constexpr std::array known{errc::timed_out,        errc::incompatible_peer, errc::bad_handshake,
                             errc::refused,          errc::disconnected,      errc::bad_frame,
                             errc::not_authenticated};
  const bool is_known =
      std::ranges::any_of(known, [&](errc one) { return f.code == make_error_code(one); });
  return is_known && !f.detail.empty();
}

/// A listener for each kind of proof, and clients whose bytes somebody changes. The clock stands
/// still while nothing was changed: then nobody may need the time.
class besieged_listeners {
 public:
  explicit besieged_listeners(test::tally& counted) : counted_{counted} {
    for (const authentication kind : {authentication::psk, authentication::certificate}) {
      const auto admit = [this](connection_request& request) {
        of_client_ = request.peer_identity;
      };
      acceptors_.emplace(kind,
                         rt.listen({}, {.admit = admit}, {.credentials = proofs_.of_server(kind)}));
      rt.run(connect(kind, {.at = SIZE_MAX}));
    }
  }

  /// Attacks a connect, or a place shortly behind its bytes.
  task<> connect(authentication kind, std::mt19937_64& random) {
    const auto [of_client, of_listener] = sizes_.at(kind);
    co_await connect(kind, test::some_attempt(random, of_client * 9 / 8, of_listener * 9 / 8));
  }
  std::string holdings() {
    rt.run(test::all_closed(rt.executor(), clock_));
    return test::holdings();
  }
  void check_that_the_next_is_served(authentication kind) {
    listener& acceptor = acceptors_.at(kind);
    auto [client, server] = rt.run(when_all(
        rt.connect(acceptor.local_endpoint(), {.credentials = proofs_.of_client(kind, true)}),
        acceptor.accept()));
    test::check_that_messages_pass(rt, client, server);
  }

 private:
  manual_clock clock_;

 public:
  runtime rt{test::on_test_device(test::by_hand(clock_))};

 private:
  struct both {
    failure client{};
    failure server{};
    bool client_has_ended = false;
    connection made{};
  };

  task<> connect(authentication kind, attempt a) {
    std::array<int, 2> fds{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0)
      throw std::runtime_error{"socketpair"};
    listener& acceptor = acceptors_.at(kind);
    relay between{rt, unique_fd{fds[1]}, a};
    both ends;
    const auto run_client = [&]() -> task<> {
      auto made = co_await as_result(
          rt.connect(unique_fd{fds[0]}, {.credentials = proofs_.of_client(kind, false)}));
      if (made.has_failure()) ends.client = made.failure();
      if (made.has_value()) ends.made = std::move(*made);
      ends.client_has_ended = true;
    };
    scope running{rt.executor()};
    running.spawn(between.run(acceptor.local_endpoint().port));
    running.spawn(run_client());
    const listener_counters before = acceptor.counters();
    const auto server_has_ended = [&] {
      return acceptor.counters().rejected + acceptor.counters().completed >
             before.rejected + before.completed;
    };
    const bool have_ended =
        co_await settled(between, [&] { return ends.client_has_ended && server_has_ended(); });
    if (acceptor.counters().rejected > before.rejected) ends.server = *acceptor.last_rejection();
    sizes_.try_emplace(kind, between.of_client.sent.size(), between.of_listener.sent.size());
    std::string complaint = have_ended ? complaint_of(between, a, ends) : "a side never ends";
    counted_.add(name_of(ends));
    if (acceptor.counters().completed > before.completed) {
      // Bytes behind the handshake may have broken the connection already: then none is given.
      const auto served = co_await when_any(acceptor.accept(), test::due_timers_fired());
      if (complaint.empty()) complaint = complaint_of(kind, ends.made.peer_identity());
    } else if (ends.made) {
      // The listener did not hear the client's last word, and tells it by an end.
      const bool is_told = co_await settled(between, [&] { return !ends.made.is_open(); });
      if (!is_told) complaint = "the client never hears that the listener has failed";
    }
    if (!have_ended) running.request_stop();
    ends.made = {};
    co_await running.join();
    counted_.judge(named{a, kind}, complaint);
  }

  /// Waits until all is over, and returns false if nothing happens any more. Where bytes were
  /// changed, sides may wait for what will not come: then the time of their deadlines comes.
  template <class Over>
  task<bool> settled(const relay& between, Over is_over) {
    constexpr std::uint64_t idle_iterations = 5000;
    constexpr std::uint64_t stuck_iterations = 50'000'000;
    constexpr unsigned deadlines_max = 3;
    for (unsigned deadlines = 0; deadlines <= deadlines_max; ++deadlines) {
      std::uint64_t idle = 0;
      std::size_t carried = 0;
      const auto is_idle = [&] {
        if (std::exchange(carried, between.carried()) != between.carried()) idle = 0;
        return ++idle > (between.is_untouched() ? stuck_iterations : idle_iterations);
      };
      co_await test::until(rt.executor(), [&] { return is_over() || is_idle(); });
      if (is_over()) co_return true;
      if (between.is_untouched()) co_return false;
      clock_.advance(10s);
    }
    co_return false;
  }

  static std::string name_of(const both& ends) {
    if (!ends.client.code && !ends.server.code) return "completed";
    if (!ends.client.code) return "completed by the client alone";
    return ends.server.code.message() + " here, " + ends.client.code.message() + " there";
  }
  /// Returns what is wrong with how both sides ended.
  static std::string complaint_of(const relay& between, const attempt& a, const both& ends) {
    const std::string said =
        "the listener: " + text_of(ends.server) + ", the client: " + text_of(ends.client);
    const bool is_made = !ends.client.code && !ends.server.code;
    if (is_made) return between.is_whole() ? "" : "bytes were changed, and " + said;
    if (between.is_untouched()) return "no byte was changed, and " + said;
    const bool only_client_made = !ends.client.code && a.on_client;
    const bool are_clear = is_clear(ends.server) && (only_client_made || is_clear(ends.client));
    return are_clear ? "" : said;
  }
  std::string complaint_of(authentication kind, const identity& of_server) {
    const bool is_key = kind == authentication::psk;
    const bool are_right = of_server.kind == kind && of_client_.kind == kind &&
                           of_server.name == (is_key ? "db-1" : "server.example") &&
                           of_client_.name == (is_key ? "db-1" : "client.example");
    return are_right ? "" : "known as " + of_client_.name + " to " + of_server.name;
  }

  struct named {
    const attempt& of;
    authentication kind;
    [[nodiscard]] std::string to_string() const {
      std::ostringstream text;
      text << of << (kind == authentication::psk ? ", a key" : ", certificates");
      return text.str();
    }
  };

  test::tally& counted_;
  test::proofs proofs_;
  identity of_client_;  ///< The proof of the last client.
  std::map<authentication, listener> acceptors_;
  std::map<authentication, std::pair<std::size_t, std::size_t>> sizes_;
};

void check_connects(std::uint64_t count, std::uint64_t seed) {
  test::tally counted{"connects under attack"};
  besieged_listeners s{counted};
  const std::string before = s.holdings();
  std::mt19937_64 random{seed};
  for (std::uint64_t n = 0; n < count; ++n) {
    const auto kind = n % 4 == 0 ? authentication::certificate : authentication::psk;
    s.rt.run(s.connect(kind, random));
  }
  CHECK(counted.complaints == "");
  CHECK(s.holdings() == before);
  CHECK(test::held_by(s.rt) == test::nothing);
  s.check_that_the_next_is_served(authentication::psk);
  s.check_that_the_next_is_served(authentication::certificate);
}

}  // namespace

TEST_CASE("a connect whose bytes are changed on the way fails on both sides, or is what it was",
          "[connection][device][N2]") {
  check_connects(200, 1);
}

TEST_CASE("ten thousand connects whose bytes are changed on the way end as they should",
          "[.soak-tls-connects][device][N2]") {
  check_connects(test::soak::count(10'000), test::soak::seed());
}
