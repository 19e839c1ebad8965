#include "world.hpp"

#include "base/caught.hpp"
#include "base/failures.hpp"
#include "base/little_endian.hpp"
#include "group_context.hpp"
#include "meeting_host.hpp"
#include "meeting_member.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/runtime/runtime.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>
#include <thread>
#include <utility>

// How a rank joins, connects to the others, and leaves.
namespace cordma::detail {
namespace {

constexpr std::chrono::milliseconds redial_delay{50};
/// How long a peer that was let in may take until its connection is there.
constexpr std::chrono::seconds handshake_max{5};
constexpr std::string_view crossing = "the lower rank connects";
constexpr std::string_view not_met = "this rank has not met the others yet";
constexpr std::string_view connected_already = "that rank is connected already";
// The answers of a rank to one that asks whether it was cut off.
constexpr std::string_view is_cut_off = "that rank was cut off";
constexpr std::string_view is_none_itself = "this rank was cut off itself";
constexpr std::string_view is_not_cut_off = "that rank was not cut off";
/// A rank that lives answers so soon.
constexpr std::chrono::seconds answer_max{2};
/// Ranks that somebody waits for are asked so often whether they live.
constexpr std::chrono::seconds tick_max{1};
/// Questions without an answer in `silence_max`, at least.
constexpr unsigned questions_least = 4;
constexpr std::size_t buffer_bytes_least = 128;
constexpr std::chrono::milliseconds silence_least{10};

/// The first bytes that two ranks show each other, in `connection_options::private_data`.
struct greeting {
  std::array<std::byte, 16> name{};
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint64_t buffer_bytes = 0;
  std::uint64_t settings = 0;
  bool asks = false;  ///< The sender wants no connection, but to know whether it was cut off.
};

constexpr std::array<char, 8> magic{'c', 'o', 'r', 'd', 'm', 'a', 'G', '1'};

std::array<std::byte, 64> encode(const greeting& g) noexcept {
  std::array<std::byte, 64> out{};
  std::memcpy(out.data(), magic.data(), magic.size());
  std::ranges::copy(g.name, out.begin() + 8);
  little_endian::put(&out[24], g.rank);
  little_endian::put(&out[28], g.size);
  little_endian::put(&out[32], g.buffer_bytes);
  little_endian::put(&out[40], g.settings);
  little_endian::put(&out[48], std::uint32_t{g.asks});
  return out;
}

std::optional<greeting> decode(const std::array<std::byte, 64>& in) noexcept {
  if (std::memcmp(in.data(), magic.data(), magic.size()) != 0) return std::nullopt;
  greeting g{.rank = little_endian::get<std::uint32_t>(&in[24]),
             .size = little_endian::get<std::uint32_t>(&in[28]),
             .buffer_bytes = little_endian::get<std::uint64_t>(&in[32]),
             .settings = little_endian::get<std::uint64_t>(&in[40]),
             .asks = little_endian::get<std::uint32_t>(&in[48]) != 0};
  std::copy_n(in.begin() + 8, g.name.size(), g.name.begin());
  return g;
}

group_options checked(const group_options& o) {
  if (o.buffer_bytes < buffer_bytes_least)
    throw_failure(errc::limit_exceeded, "group::join",
                  detail_text("group_options::buffer_bytes is %zu; the least is %zu",
                              o.buffer_bytes, buffer_bytes_least));
  if (duration{o.silence_max} < silence_least)
    throw_failure(errc::limit_exceeded, "group::join",
                  detail_text("group_options::silence_max is %lld ns; the least is 10 ms",
                              static_cast<long long>(duration{o.silence_max}.count())));
  return o;
}

task<> say_goodbye(connection conn) { co_await conn.close(); }

failure cut_off_by_others() noexcept {
  return {.code = errc::rank_failed, .call = "group", .detail = "the others have cut off this one"};
}

bool says(const failure& why, std::string_view text) noexcept {
  return why.code == errc::refused && why.detail.view().find(text) != std::string_view::npos;
}

}  // namespace

connecting::connecting(runtime& rt, const endpoint& to, const connection_changes& how)
    : ended{rt.executor()} {
  running_.start(connect(rt, to, how), rt.executor());
}

task<> connecting::connect(runtime& rt, endpoint to, connection_changes how) {
  outcome = co_await as_result(rt.connect(to, how));
  ended.set();
}

task<> connecting::leave(std::unique_ptr<connecting> c) {
  co_await c->ended.wait();
  if (!c->outcome.has_value()) co_return;
  connection made = std::move(c->outcome).value();
  co_await made.close();
}

// ---- joining and leaving

world::sweeper::sweeper(world& w) noexcept
    : waiter{[](waiter& self) noexcept -> std::coroutine_handle<> {
        static_cast<sweeper&>(self).whole.swept_.clear();
        return std::noop_coroutine();
      }},
      whole{w} {}

world::world(runtime& rt, const group_options& options)
    : rt_{rt},
      executor_{rt.executor()},
      options_{checked(options)},
      algorithms_{configured_algorithms(options.algorithms.view())},
      settings_{hash_of(algorithms_.to_string(), std::uint64_t{options.reproducible})},
      tick_{std::min<duration>(duration{options.silence_max} / questions_least, tick_max)},
      silent_ticks_max_{unsigned(duration{options.silence_max} / tick_)},
      changed_{executor_} {}

world::~world() {
  watch_.reset();
  accepting_.stop();
  while (!early_.empty()) delete &early_.front();
  for (const std::unique_ptr<rank_peer>& p : peers_) {
    if (p == nullptr) continue;
    p->dialing.stop();
    p->asking.stop();
    fail_all(p->unsent, {.code = errc::closed, .call = "group"});
    try {
      if (p->attempt) executor_.closer().spawn(connecting::leave(std::move(p->attempt)));
      if (p->now != rank_peer::state::open) continue;
      p->link->leave();
      executor_.closer().spawn(say_goodbye(std::move(p->conn)));
    } catch (const std::bad_alloc&) {
      // The peer takes it for a death.
    }
  }
}

connection_changes world::changes(bool asks) const {
  connection_changes c = options_.connections;
  c.receives_from = asks ? nullptr : pool_;
  if (asks) c.connect_timeout = answer_max;
  c.private_data = encode(greeting{.name = roster_.name,
                                   .rank = roster_.rank,
                                   .size = size(),
                                   .buffer_bytes = options_.buffer_bytes,
                                   .settings = settings_,
                                   .asks = asks});
  return c;
}

task<counted_ref<world>> world::join(runtime& rt, meeting_kind& how, const group_options& options) {
  counted_ref<world> made{*new world{rt, options}};
  world& w = *made.get();
  const endpoint suggested = co_await how.where_to_listen(rt);
  const endpoint where = options.listen.empty() ? suggested : endpoint{options.listen.view()};
  constexpr std::uint32_t buffers_least = 256;
  constexpr std::uint32_t buffers_most = 16384;
  const std::uint32_t ranks = how.size();
  const std::uint32_t buffers =
      options.receive_buffers != 0
          ? options.receive_buffers
          : std::clamp(2 * ranks * message_protocol::credits_min, buffers_least, buffers_most);
  w.pool_ = &rt.share_receives({.buffers = buffers,
                                .buffer_bytes = message_protocol::header_bytes +
                                                group_protocol::header_bytes + options.buffer_bytes,
                                .share_min = message_protocol::credits_min});
  w.listener_.emplace(
      rt.listen(where, {.admit = [&w](connection_request& r) { w.admit(r); }}, w.changes()));
  group_member self{w.listener_->local_endpoint().to_string(), host_number(rt, options)};
  w.meeting_ends_ = w.executor_.after(options.join_timeout);
  w.roster_ = co_await how.meet(rt, options, std::move(self));
  // The rank that this one waits for needs a processor, too.
  const auto local =
      std::ranges::count(w.roster_.members, w.roster_.members[w.rank()].host, &group_member::host);
  if (local > std::ptrdiff_t(std::thread::hardware_concurrency()))
    w.executor_.yield_while_spinning(true);
  w.peers_.resize(w.size());
  w.all_.resize(w.size());
  std::iota(w.all_.begin(), w.all_.end(), std::uint32_t{0});
  w.watch_ = how.watch(rt, [&w](unsigned lost) {
    if (lost < w.size() && lost != w.rank())
      w.cut_off(lost,
                {.code = errc::disconnected, .call = "group", .detail = "its launcher says so"});
  });
  w.accepting_.start(w.accept_all(), w.executor_);
  if (options.connect_at_once) co_await w.connect_in_time();
  co_return made;
}

// ---- connections

void world::admit(connection_request& request) {
  const std::optional<greeting> g = decode(request.private_data);
  if (!g) return request.refuse("this is a rank of a group, and the client is none");
  if (g->buffer_bytes != options_.buffer_bytes)
    return request.refuse("group_options::buffer_bytes differ");
  if (g->settings != settings_)
    return request.refuse(
        "group_options::algorithms, CORDMA_COLLECTIVES or group_options::reproducible differ");
  if (peers_.empty()) return request.refuse(not_met);
  if (g->name != roster_.name || g->size != size() || g->rank >= size() || g->rank == rank())
    return request.refuse("a rank of another group");
  rank_peer& p = peer(g->rank);
  if (cut_off_) return request.refuse(is_none_itself);
  if (p.now == rank_peer::state::dead) return request.refuse(is_cut_off);
  if (p.now == rank_peer::state::left) return request.refuse("that rank has left, or this one");
  if (g->asks) return request.refuse(is_not_cut_off);
  if (p.now == rank_peer::state::open || p.now == rank_peer::state::lost)
    return request.refuse(connected_already);
  if (p.attempt && rank() < p.rank) return request.refuse(crossing);
  p.expected_until = executor_.after(handshake_max);
  request.reply = *changes().private_data;
}

task<> world::accept_all() {
  for (;;) {
    result<connection> came = co_await as_result(listener_->accept());
    if (!came.has_value()) co_return;
    connection conn = std::move(came).value();
    const std::optional<greeting> g = decode(conn.peer_private_data());
    if (!g || g->name != roster_.name || g->rank >= size() || g->rank == rank()) continue;
    rank_peer& p = peer(g->rank);
    if (p.now >= rank_peer::state::open) continue;
    attach(p, std::move(conn));
  }
}

rank_peer& world::peer(std::uint32_t rank) {
  std::unique_ptr<rank_peer>& p = peers_[rank];
  if (p == nullptr) p = std::make_unique<rank_peer>(*this, rank);
  return *p;
}

void world::want(rank_peer& p) noexcept {
  if (p.now != rank_peer::state::unconnected) return;
  p.now = rank_peer::state::dialing;
  try {
    // The first attempt is made in a later iteration: this may be the middle of a reap.
    p.dialing.start(dial(p), executor_);
  } catch (const std::bad_alloc&) {
    cut_off(p.rank, errno_failure(ENOMEM, "connect"));
  }
}

task<> world::dial(rank_peer& p) {
  co_await executor_.sleep_for(duration{});
  const group_member& to = roster_.members[p.rank];
  while (p.now == rank_peer::state::dialing) {
    if (!executor_.is_past(p.expected_until)) {
      static_cast<void>(co_await as_result(
          with_timeout(changed_.wait(), p.expected_until - executor_.now(), &executor_)));
      continue;
    }
    p.attempt = std::make_unique<connecting>(rt_, endpoint{to.endpoint}, changes());
    co_await p.attempt->ended.wait();
    result<connection> made = std::move(std::exchange(p.attempt, nullptr)->outcome);
    if (p.now != rank_peer::state::dialing) co_return;
    if (made.has_value()) {
      connection conn = std::move(made).value();
      const std::optional<greeting> g = decode(conn.peer_private_data());
      if (g && g->rank == p.rank) {
        attach(p, std::move(conn));
      } else {
        cut_off(p.rank,
                {.code = errc::incompatible_peer,
                 .call = "connect",
                 .detail = detail_text("no rank %u at %s", unsigned{p.rank}, to.endpoint.c_str())});
      }
      co_return;
    }
    const failure why = made.failure();
    if (says(why, is_cut_off)) co_return give_up(cut_off_by_others());
    const bool may_be_late =
        says(why, not_met) || (roster_.may_come_late && why.code == std::errc::connection_refused);
    if (!executor_.is_past(p.expected_until)) continue;
    // The peer's own connection may end up here after this answer.
    if (says(why, crossing) || (says(why, connected_already) && p.expected_until == time_point{})) {
      p.expected_until = executor_.after(2 * handshake_max);
    } else if (may_be_late && !executor_.is_past(meeting_ends_)) {
      co_await executor_.sleep_for(redial_delay);
    } else {
      cut_off(p.rank, why);
    }
  }
}

void world::suspect(rank_peer& p, const failure& why) noexcept {
  p.now = rank_peer::state::lost;
  p.why = why;
  drop_link(p);
  try {
    p.asking.start(ask(p), executor_);
  } catch (const std::bad_alloc&) {
    cut_off(p.rank, why);
  }
}

/// Asks a rank whose connection was lost whether it has cut off this one. A rank that is dead gives
/// no answer. If both live, the connection alone was lost, and the lower rank stays.
task<> world::ask(rank_peer& p) {
  co_await executor_.sleep_for(duration{});
  const endpoint to{roster_.members[p.rank].endpoint};
  const result<connection> made = co_await as_result(rt_.connect(to, changes(true)));
  if (p.now != rank_peer::state::lost) co_return;
  const auto is_told = [&](std::string_view text) {
    return made.has_failure() && says(made.failure(), text);
  };
  if (is_told(is_cut_off) || (is_told(is_not_cut_off) && p.rank < rank()))
    co_return give_up(cut_off_by_others());
  cut_off(p.rank, failure{*p.why});
}

void world::attach(rank_peer& p, connection conn) noexcept {
  p.conn = std::move(conn);
  p.now = rank_peer::state::open;
  try {
    p.link = counted_ref{message_channel::make<rank_link>(
        *this, p.rank, rank_link::resources_of(p.conn), stream_options{.depth = link_credits_max})};
  } catch (...) {
    return cut_off(p.rank, caught("group"));
  }
  const counted_ref stay{*this};
  if (p.link->failed()) return on_link_lost(p.rank, *p.link->failed());
  while (!p.unsent.empty() && p.link) p.link->send(p.unsent.pop_front());
  tell_left_groups(p);
  intrusive_list<link_wait> waits;
  waits.splice_back(p.link_waits);
  while (!waits.empty()) waits.pop_front().on_link();
  changed_.set();
  changed_.reset();
}

task<> world::connect_all() {
  for (std::uint32_t r = rank() + 1; r < size(); ++r) want(peer(r));
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const rank_peer& p = peer(r);
    while (p.now != rank_peer::state::open && !p.is_gone()) co_await changed_.wait();
    if (p.is_gone())
      throw_error({.code = errc::rank_failed,
                   .call = "group::join",
                   .object = {"rank", r},
                   .detail = detail_text("rank %u is lost: %.150s", unsigned{r},
                                         p.why->to_string().c_str())});
  }
}

task<> world::connect_in_time() {
  const duration left = std::max(duration{}, meeting_ends_ - executor_.now());
  result<void> ended = co_await as_result(with_timeout(connect_all(), left, &executor_));
  if (!ended.has_failure() || !executor_.is_past(meeting_ends_)) co_return std::move(ended).value();
  std::vector<unsigned> missing;
  for (std::uint32_t r = 0; r < size(); ++r)
    if (r != rank() && !is_connected(r)) missing.push_back(r);
  const failure why = missing_ranks("group::join", missing, size(), options_.join_timeout);
  // Other ranks hear which ones it was before they see that this one goes.
  for (const unsigned r : missing) cut_off(r, why);
  throw_error(why);
}

task<> world::close() {
  std::vector<connection> all;
  for (const std::unique_ptr<rank_peer>& p : peers_) {
    if (p == nullptr || p->now != rank_peer::state::open) continue;
    p->link->leave();
    p->link = {};
    p->now = rank_peer::state::left;
    p->why = failure{.code = errc::closed, .call = "group"};
    all.push_back(std::move(p->conn));
  }
  co_await with_scope([&](scope& closing) -> task<> {
    for (connection& conn : all) closing.spawn(conn.close());
    co_return;
  });
}

group::statistics world::counters() const noexcept {
  group::statistics now = counted;
  now.receive_bytes = pool_->memory_bytes();
  for (const std::unique_ptr<rank_peer>& p : peers_)
    now.connections += p != nullptr && p->now == rank_peer::state::open ? 1 : 0;
  return now;
}

}  // namespace cordma::detail
