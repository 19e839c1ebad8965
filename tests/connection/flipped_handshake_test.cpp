// Clients whose frames have bits changed. Each is refused as docs/handshake.md says and told why,
// or gets a connection as the changed bits say. The next real client is served.

#include "client_frames.hpp"
#include "cm_peers.hpp"
#include "cm_replay.hpp"
#include "impostor.hpp"
#include "tally.hpp"

#include "support/leaks.hpp"
#include "support/raw_peer.hpp"
#include "support/soak.hpp"
#include "support/some_hello.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <array>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

using namespace cordma;
using test::client_frames;
using test::tally;

namespace {

/// Names the outcome of one side of a handshake: a failure without a code is none.
std::string name_of(const failure& f) { return f.code ? f.code.message() : "completed"; }

/// Returns the code that the client gets for the listener's failure.
std::error_code told_of(std::error_code code) {
  for (const errc one : {errc::timed_out, errc::incompatible_peer, errc::bad_handshake})
    if (code == make_error_code(one)) return code;
  return make_error_code(errc::refused);
}

/// Returns what is wrong with how both sides ended.
std::string complaint_of(const test::faults& due, const failure& listener, const failure& client) {
  if (due.are_none()) {
    if (!listener.code && !client.code) return {};
  } else if (due.have(listener.code) && client.code == told_of(listener.code)) {
    return {};
  }
  return "the listener: " + listener.to_string() + ", the client: " + client.to_string();
}

/// Returns what is wrong with a connection: it is to be what the client said, and no more.
std::string complaint_of(const client_frames& said, const test::judge& by, const connection& made) {
  const auto hello = said.hello();
  const auto& agreed = made.agreement();
  if (handshake::encode(made.peer_hello()) != test::meaning_of(hello)) return "another hello";
  if (std::uint64_t(agreed.rtr.path_mtu) != test::agreed_mtu(hello, by)) return "another MTU";
  if (agreed.rtr.dest_qpn != test::number(hello, 32, 4)) return "another queue pair";
  if (agreed.rtr.rq_psn != test::number(hello, 36, 4)) return "another PSN";
  if (made.has_agent() != test::has_agent(hello)) return "an agent too many, or none";
  const auto& own = by.hello;
  const std::uint64_t served =
      std::min<std::uint64_t>(own.rd_atomic_responder, test::number(hello, 40, 4));
  if (agreed.rtr.dest_rd_atomic_max != served) return "another number of READs served";
  if (made.peer_private_data() != made.peer_hello().private_data) return "other private data";
  return {};
}

failure failure_of(const auto& outcome) {
  return outcome.has_failure() ? outcome.failure() : failure{};
}

/// Sends all of a client's frames, each at its step. Returns the listener's verdict.
task<failure> speak(byte_channel& channel, std::span<const std::byte> greeting,
                    const client_frames& said) {
  co_await write_all(channel, greeting);
  auto hello = co_await as_result(bootstrap::read_hello(channel));
  if (hello.has_failure()) co_return hello.failure();
  handshake::frame_bytes_t verdict;
  std::ranges::copy(said.verdict(), verdict.begin());
  for (std::size_t n = 0; n < hello->nonce.size(); ++n) verdict[16 + n] ^= hello->nonce[n];
  co_await write_all(channel, verdict);
  handshake::nonce ours;
  std::ranges::copy(said.hello().subspan(192, 16), ours.begin());
  co_return failure_of(co_await as_result(bootstrap::read_acceptance(channel, ours)));
}

/// One handshake over a stream.
task<> over_a_stream(test::connected_pair& p, const client_frames& flips, tally& counted) {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0)
    throw std::runtime_error{"socketpair"};
  const test::judge by{.hello = p.server.local_hello(), .client = socket_address::loopback(0)};
  client_frames said{p.client.local_hello()};
  said ^= flips;
  const auto talk = [&]() -> task<failure> {
    test::raw_peer peer{stream_socket{p.rt.executor(), unique_fd{fds[0]}}};
    co_return co_await speak(peer, said.greeting(), said);
  };
  auto [told, made] = co_await when_all(talk(), as_result(p.rt.accept(unique_fd{fds[1]})));
  const failure why = failure_of(made);
  counted.add(name_of(why));
  std::string complaint = complaint_of(test::faults_of(said, by), why, told);
  if (complaint.empty() && made.has_value()) complaint = complaint_of(said, by, *made);
  counted.judge(flips, complaint);
}

/// Sends the frames that were recorded of another handshake, whatever the listener's hello is.
task<failure> speak_again(byte_channel& channel, const client_frames& recorded) {
  co_await write_all(channel, recorded.greeting());
  static_cast<void>(co_await bootstrap::read_hello(channel));
  co_await write_all(channel, recorded.verdict());
  handshake::nonce ours;
  std::ranges::copy(recorded.hello().subspan(192, 16), ours.begin());
  co_return failure_of(co_await as_result(bootstrap::read_acceptance(channel, ours)));
}

/// A handshake that is right, and then all its frames again.
task<> over_a_stream_again(test::connected_pair& p, tally& counted) {
  client_frames said{p.client.local_hello()};
  for (const bool is_again : {false, true}) {
    std::array<int, 2> fds{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0)
      throw std::runtime_error{"socketpair"};
    const auto talk = [&]() -> task<failure> {
      test::raw_peer peer{stream_socket{p.rt.executor(), unique_fd{fds[0]}}};
      if (is_again) co_return co_await speak_again(peer, said);
      co_return co_await speak(peer, said.greeting(), said);
    };
    auto [told, made] = co_await when_all(talk(), as_result(p.rt.accept(unique_fd{fds[1]})));
    test::faults due;
    due.add(is_again, errc::bad_handshake);
    counted.add(is_again ? "again: " + name_of(failure_of(made)) : name_of(failure_of(made)));
    counted.judge(client_frames{}, complaint_of(due, failure_of(made), told));
    if (made.has_value()) said.accept(made->local_hello().nonce);
  }
}

/// Returns the verdict for a client of rdma_cm. Its request, hello or verdict may be refused.
task<failure> told_by_rdma_cm(test::cm_speaker& client, const socket_address& to,
                              client_frames& said) {
  const client_frames flips = said;
  std::ranges::copy(flips.start(), client.start_flips.begin());
  const auto connected = co_await as_result(client.connect(to));
  said = client_frames{client.state->local_hello};
  said ^= flips;
  if (connected.has_failure()) co_return client.rejection.value_or(connected.failure());
  co_return co_await speak(*client.channel, said.hello(), said);
}

/// One handshake by rdma_cm.
task<> by_rdma_cm(test::cm_runtime& r, listener& acceptor, const client_frames& flips,
                  tally& counted) {
  test::cm_speaker client{r};
  client_frames said = flips;
  const auto ended = [&] { return acceptor.counters().completed + acceptor.counters().rejected; };
  const std::uint64_t completed_before = acceptor.counters().completed;
  const std::uint64_t ended_before = ended();
  const failure told = co_await told_by_rdma_cm(client, r.address_of(acceptor), said);
  co_await test::until(r.rt.executor(), [&] { return ended() > ended_before; });
  const bool is_made = acceptor.counters().completed > completed_before;
  const failure why = is_made ? failure{} : *acceptor.last_rejection();
  counted.add(name_of(why));
  const handshake::hello& own = client.state->local_hello;
  const test::judge by{.hello = own, .client = r.address, .agent_qpn = own.agent.qpn};
  std::string complaint = complaint_of(test::faults_of(said, by), why, told);
  if (is_made) {
    const connection made = co_await acceptor.accept();
    if (complaint.empty()) complaint = complaint_of(said, by, made);
  }
  counted.judge(flips, complaint);
}

/// Returns what is wrong with the end of a replay.
std::string complaint_of(const test::cm_recording& said, test::cm_replay how,
                         const test::cm_replay_outcome& got) {
  const bool is_begun = how.frames < said.refusable(how.has_own_qpn);
  test::faults due;
  due.add(true, is_begun ? errc::disconnected : errc::bad_handshake);
  due.add(how.at_once, errc::bad_frame);  // Frames may count what the listener has not said yet.
  const bool is_told = !how.at_once && !is_begun;
  const errc told = said.has_tls() ? errc::not_authenticated : errc::bad_handshake;
  const bool is_right = due.have(got.why.code) && !got.has_memory &&
                        (!is_told || got.told.code == make_error_code(told));
  if (is_right) return {};
  return "the listener: " + got.why.to_string() + ", the client: " + got.told.to_string();
}

/// A handshake by rdma_cm that is right, and then what was said in it again.
task<> by_rdma_cm_again(test::cm_runtime& r, listener& acceptor, const connection_options& options,
                        std::mt19937_64& random, tally& counted) {
  const test::cm_recording said = co_await test::recorded(r, acceptor, options);
  test::cm_replay how{.frames = said.frames.size()};
  const std::uint64_t lot = random() % 4;
  if (lot == 0) how.frames = random() % said.frames.size();
  how.at_once = lot == 1;
  how.has_own_qpn = !said.has_tls() && random() % 2 == 0;
  const test::cm_replay_outcome got = co_await test::replayed(r, acceptor, said, how);
  counted.add("again: " + name_of(got.why));
  counted.judge(how, complaint_of(said, how, got));
}

/// Handshakes under way at once. Each waits for other threads now and then.
constexpr std::uint64_t lanes = 4;

/// Runs `count` handshakes with random changes.
task<> repeat(std::uint64_t count, std::uint64_t seed, auto one) {
  std::mt19937_64 random{seed};
  for (std::uint64_t n = 0; n < count; ++n) co_await one(test::some_flips(random));
}

/// Runs `one_in(lane)`'s handshakes in all lanes, at least `count`.
void run_lanes(runtime& rt, std::uint64_t count, std::uint64_t seed, auto one_in) {
  const auto all = [&]() -> task<> {
    scope running{rt.executor()};
    for (std::uint64_t lane = 0; lane < lanes; ++lane) {
      const std::uint64_t share = (count + lanes - 1) / lanes;
      running.spawn(repeat(share, seed + lane, one_in(lane)));
    }
    co_await running.join();
  };
  rt.run(all());
}

/// Names the objects that are held once `queue_pairs` are left.
std::string held_with(cordma::executor& executor, long queue_pairs) {
  executor.run(test::until(executor, [&] {
    return verbs_faults::live_objects()[std::size_t(verbs_faults::kind::qp)] == queue_pairs;
  }));
  return test::holdings();
}

void check_streams(std::uint64_t count, std::uint64_t seed) {
  test::connected_pair p;
  tally counted{"streams"};
  const auto one_in = [&](std::uint64_t) {
    return [&](const client_frames& flips) { return over_a_stream(p, flips, counted); };
  };
  run_lanes(p.rt, lanes, seed, one_in);
  const std::string before = held_with(p.rt.executor(), 4);
  run_lanes(p.rt, count, seed, one_in);
  const auto again = [&]() -> task<> {
    for (std::uint64_t n = 0; n < count / 10 + 1; ++n) co_await over_a_stream_again(p, counted);
  };
  p.rt.run(again());
  CHECK(counted.complaints == "");
  CHECK(test::settled_holdings(p.rt.executor(), before) == before);
  p.rt.run(p.open({}));
  CHECK(p.client.is_open());
}

void check_replays(test::cm_runtime& r, std::uint64_t count, std::uint64_t seed, tally& counted) {
  const credentials key = test::some_key();
  std::array<connection_options, 2> kinds{test::lender_with(key), test::lender_with(key)};
  kinds[0].credentials = nullptr;
  std::array<listener, 2> acceptors{r.listen(kinds[0]), r.listen(kinds[1])};
  std::mt19937_64 random{seed};
  const auto replays = [&](std::uint64_t all) -> task<> {
    for (std::uint64_t n = 0; n < all; ++n)
      co_await by_rdma_cm_again(r, acceptors[n % 2], kinds[n % 2], random, counted);
  };
  r.rt.run(replays(2));
  const std::string before = held_with(r.rt.executor(), 0);
  r.rt.run(replays(count));
  CHECK(counted.complaints == "");
  CHECK(test::settled_holdings(r.rt.executor(), before) == before);
}

void check_rdma_cm(std::uint64_t count, std::uint64_t seed) {
  test::cm_runtime r;
  std::vector<listener> acceptors;
  for (std::uint64_t lane = 0; lane < lanes; ++lane) acceptors.push_back(r.listen());
  tally counted{"rdma_cm"};
  const auto one_in = [&](std::uint64_t lane) {
    return [&, lane](const client_frames& flips) {
      return by_rdma_cm(r, acceptors[lane], flips, counted);
    };
  };
  run_lanes(r.rt, lanes, seed, one_in);
  const std::string before = held_with(r.rt.executor(), 0);
  run_lanes(r.rt, count, seed, one_in);
  CHECK(counted.complaints == "");
  CHECK(test::settled_holdings(r.rt.executor(), before) == before);
  check_replays(r, count / 10 + 1, seed, counted);
  auto [client, server] =
      r.rt.run(when_all(r.rt.connect(acceptors[0].local_endpoint()), acceptors[0].accept()));
  test::check_that_messages_pass(r.rt, client, server);
}

}  // namespace

TEST_CASE("each bit of a client's frames, if changed, is refused or has its meaning",
          "[connection][device][rdma_cm][N2]") {
  test::connected_pair p;
  tally counted{"each bit"};
  const std::size_t step = test::is_soft() ? 1 : 17;  // A kernel's device is slower.
  const auto all = [&]() -> task<> {
    for (std::size_t bit = 0; bit < 8 * client_frames{}.bytes.size(); bit += step) {
      client_frames flips;
      flips.flip(bit);
      co_await over_a_stream(p, flips, counted);
    }
  };
  p.rt.run(all());
  CHECK(counted.complaints == "");
}

TEST_CASE(
    "changed frames of clients are refused or have their meaning, and nothing is left of them",
    "[connection][device][rdma_cm][N2]") {
  check_streams(400, 1);
}

TEST_CASE("changed frames of rdma_cm's clients are refused or have their meaning",
          "[connection][device][rdma_cm][N2]") {
  check_rdma_cm(100, 1);
}

TEST_CASE("a million changed handshakes over streams end as they should",
          "[.soak-greetings][device][rdma_cm][N2]") {
  check_streams(test::soak::count(1'000'000), test::soak::seed());
}

TEST_CASE("a million changed handshakes by rdma_cm end as they should",
          "[.soak-greetings-rdma-cm][device][rdma_cm][N2]") {
  check_rdma_cm(test::soak::count(1'000'000), test::soak::seed());
}
