#include "world.hpp"

#include "base/caught.hpp"
#include "base/failures.hpp"
#include "connection/connection_resources.hpp"
#include "group_context.hpp"
#include "io/logger.hpp"

#include <cordma/runtime/runtime.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

// This file knows which ranks live, and passes frames. world_links.cpp makes the connections.
namespace cordma::detail {

using group_protocol::kind;

namespace {

/// Frames for one peer that nobody waits for, and that the peer has not taken.
constexpr std::uint32_t told_frames_max = 8192;

}  // namespace

void fail_all(intrusive_list<outgoing_frame>& frames, const failure& why) noexcept {
  intrusive_list<outgoing_frame> all;
  all.splice_back(frames);
  while (!all.empty()) {
    outgoing_frame& o = all.pop_front();
    o.on_posted(o, why);
  }
}

dropped_frame::dropped_frame(const group_protocol::frame& f, std::string t) : text{std::move(t)} {
  frame.kind = message_protocol::kind::data;
  group_protocol::encode(f, open_head(std::uint32_t(group_protocol::size_of(f.kind))));
  bytes = std::as_bytes(std::span{text});
  on_posted = [](outgoing_frame& self, const std::optional<failure>&) noexcept {
    auto* const dropped = static_cast<dropped_frame*>(&self);
    if (dropped->link != nullptr) --dropped->link->told;
    delete dropped;
  };
}

early_frame::early_frame(std::uint32_t rank, const group_protocol::frame& f,
                         std::span<const std::byte> bytes)
    : from{rank},
      frame{f},
      size_{bytes.size()},
      copy_{static_cast<std::byte*>(frame_cache::allocate(std::max<std::size_t>(size_, 1)))} {
  if (size_ != 0) std::memcpy(copy_, bytes.data(), size_);
}
early_frame::~early_frame() { frame_cache::deallocate(copy_, std::max<std::size_t>(size_, 1)); }

// ---- sending

void world::send(std::uint32_t to, outgoing_frame& o) noexcept {
  rank_peer& p = peer(to);
  if (p.is_gone()) return o.on_posted(o, p.why);
  if (p.link) [[likely]]
    return p.link->send(o);
  p.unsent.push_back(o);
  want(p);
}

void world::tell(std::uint32_t to, const group_protocol::frame& f, std::string text) noexcept {
  try {
    auto* const told = new dropped_frame{f, std::move(text)};
    const counted_ref<rank_link> link = peer(to).link;
    if (!link) return send(to, *told);
    told->link = link.get();
    const bool is_flood = ++link->told > told_frames_max;
    link->send(*told);
    if (is_flood)
      link->accuse({.code = errc::limit_exceeded,
                    .call = "group",
                    .detail = "asks more than it takes answers to"});
  } catch (const std::bad_alloc&) {
    cut_off(to, errno_failure(ENOMEM, "group"));
  }
}

/// Each rank has connections made to those at distances of powers of two. So the frame needs few
/// steps, and many ranks would have to be gone before it missed one.
void world::spread(std::span<const std::uint32_t> ranks, std::size_t own,
                   const group_protocol::frame& f, const std::string& text) noexcept {
  for (std::size_t n = 1; n < ranks.size(); ++n) {
    const std::uint32_t r = ranks[(own + n) % ranks.size()];
    if (is_connected(r) || (std::has_single_bit(n) && !is_gone(r))) tell(r, f, text);
  }
}

// ---- who lives

void world::begin_wait(rank_peer& p) noexcept {
  ++p.waits;
  arm_ticker();
}

void world::arm_ticker() noexcept {
  if (!ticker_.is_armed()) executor_.arm(ticker_, executor_.about_after(tick_));
}

/// Marks the connected members of groups that wait for any rank. Returns true if there is one.
bool world::mark_awaited_as_any() noexcept {
  bool somebody_waits = false;
  groups_list_.for_each([&](group_context& c) {
    if (!c.by_tag().awaits_any()) return;
    somebody_waits = true;
    for (const std::uint32_t m : c.members())
      if (is_connected(m)) peers_[m]->is_one_of_any = true;
  });
  return somebody_waits;
}

void world::on_tick(timer& self) noexcept {
  world& w = static_cast<ticker&>(self).whole;
  const counted_ref stay{w};
  bool somebody_waits = w.mark_awaited_as_any();
  for (std::size_t n = 0; n < w.peers_.size(); ++n) {
    rank_peer* const p = w.peers_[n].get();
    if (p == nullptr || p->is_gone()) continue;
    if (p->waits > 0 && p->now != rank_peer::state::open) {
      // The peer connects when it sends. One that is dead does not.
      somebody_waits = true;
      w.want(*p);
      continue;
    }
    const bool is_awaited = std::exchange(p->is_one_of_any, false) || p->waits > 0;
    p->silent_ticks = p->was_heard || !is_awaited ? 0 : p->silent_ticks + 1;
    p->was_heard = false;
    if (!is_awaited) continue;
    if (p->silent_ticks >= w.silent_ticks_max_) {
      w.cut_off(p->rank, {.code = errc::timed_out,
                          .call = "group",
                          .detail = "its executor gave no sign of life within silence_max"});
      continue;
    }
    somebody_waits = true;
    if (p->silent_ticks > 0) w.tell(p->rank, {.kind = kind::ping});
  }
  if (somebody_waits) w.arm_ticker();
}

void world::on_link_lost(std::uint32_t rank, const failure& why) noexcept {
  rank_peer& p = peer(rank);
  if (p.now >= rank_peer::state::lost) return;
  if (p.conn.was_closed_by_peer()) return lose(p, rank_peer::state::left, why);
  // A peer that does what no rank does is not asked.
  if (p.link && p.link->is_accused()) return cut_off(rank, why);
  suspect(p, why);
}

void world::cut_off(std::uint32_t rank, const failure& why) noexcept {
  rank_peer& p = peer(rank);
  if (p.now == rank_peer::state::dead) return;
  const counted_ref stay{*this};
  lose(p, rank_peer::state::dead, why);
  try {
    spread(all_, this->rank(), {.kind = kind::dead, .step = rank}, why.to_string());
  } catch (const std::bad_alloc&) {
    // Other ranks find out by themselves.
  }
}

/// A group may lose ranks, or end, in the middle.
template <class F>
void world::for_each_group(F f) noexcept {
  intrusive_list<group_context> all;
  all.splice_back(groups_list_);
  while (!all.empty()) {
    group_context& c = all.pop_front();
    groups_list_.push_back(c);
    const counted_ref stay{c};
    f(c);
  }
}

void world::give_up(const failure& why) noexcept {
  if (cut_off_) return;
  const counted_ref stay{*this};
  cut_off_ = why;
  // Ranks that were never connected are lost as well: a `shrink` would wait for them.
  for (std::uint32_t r = 0; r < peers_.size(); ++r)
    if (r != rank()) static_cast<void>(peer(r));
  const auto for_each_peer = [&](auto f) {
    for (const std::unique_ptr<rank_peer>& p : peers_)
      if (p != nullptr) f(*p);
  };
  // The groups come first: each is to hear why, and none has anybody left to tell.
  for_each_peer([&](rank_peer& p) {
    if (p.is_gone()) return;
    p.now = rank_peer::state::dead;
    p.why = *cut_off_;
  });
  for_each_group([&](group_context& c) { c.fail(*cut_off_, c.rank()); });
  for_each_peer([&](rank_peer& p) {
    drop_link(p);
    fail_all(p.unsent, *cut_off_);
  });
  left_.clear();
  tell_groups();
  changed_.set();
  changed_.reset();
}

void world::drop_link(rank_peer& p) noexcept {
  if (p.link) std::exchange(p.link, {})->leave();
  if (p.conn) {
    // Possibly the middle of a reap, where no connection may be destroyed.
    swept_.push_back(std::move(p.conn));
    if (!sweeper_.is_linked()) executor_.schedule(sweeper_);
  }
}

void world::lose(rank_peer& p, rank_peer::state how, const failure& why) noexcept {
  p.now = how;
  p.why = why;
  if (how == rank_peer::state::dead) {
    const socket_address* const peer = p.conn ? &p.conn.peer() : nullptr;
    const fixed_text<240> note = detail_text("rank %u of %zu", p.rank, peers_.size());
    log_to(rt_.resources().log, event_log::kind::rank_lost,
           {.peer = peer, .note = note.view(), .why = &why});
  }
  drop_link(p);
  fail_all(p.unsent, why);
  for (auto at = left_.begin(); at != left_.end();) {
    at->second.inside[p.rank] = false;
    at = at->second.is_empty() ? left_.erase(at) : std::next(at);
  }
  p.is_told = false;
  tell_groups();
  changed_.set();
  changed_.reset();
}

/// Tells all groups of the ranks that are gone. A group that hears of one may lose another.
void world::tell_groups() noexcept {
  if (is_telling_) return;
  is_telling_ = true;
  const auto next = [&] {
    return std::ranges::find_if(peers_, [](const std::unique_ptr<rank_peer>& p) {
      return p != nullptr && p->is_gone() && !p->is_told;
    });
  };
  for (auto at = next(); at != peers_.end(); at = next()) {
    rank_peer& p = **at;
    p.is_told = true;
    for_each_group([&](group_context& c) { c.on_rank_gone(p.rank); });
  }
  is_telling_ = false;
}

// ---- groups

void world::add(group_context& c) {
  if (!groups_.emplace(c.id(), &c).second)
    throw_failure(errc::out_of_range, "group",
                  "this group has been made before: `shrink` makes one of each group");
  groups_list_.push_back(c);
  intrusive_list<early_frame> others;
  others.splice_back(early_);
  while (!others.empty()) {
    early_frame& e = others.pop_front();
    if (e.frame.group != c.id()) {
      early_.push_back(e);
      continue;
    }
    const std::unique_ptr<early_frame> owned{&e};
    --peer(e.from).early;
    try {
      c.on_frame(e.from, e.frame, e.bytes(), {});
    } catch (...) {
      cut_off(e.from, caught("group"));
    }
  }
}

void world::remove(group_context& c) noexcept {
  const auto at = groups_.find(c.id());
  if (at == groups_.end() || at->second != &c) return;  // `add` has thrown.
  groups_.erase(at);
  c.list_hook<group_context>::unlink();
  left_group left{.decision = c.vote().bitmap(),
                  .decider = c.vote().decider(),
                  .inside = std::vector<bool>(size())};
  if (c.vote().awaits_decision()) left.members = c.members();
  for (std::uint32_t r = 0; r < c.size(); ++r)
    left.inside[c.member(r)] = r != c.rank() && !c.is_gone(r);
  leave_group(c.id(), c.members(), std::move(left));
}

void world::disown(std::uint64_t group, std::span<const std::uint32_t> ranks) noexcept {
  left_group left{.inside = std::vector<bool>(size())};
  for (const std::uint32_t r : ranks) left.inside[r] = r != rank() && !is_gone(r);
  intrusive_list<early_frame> others;
  others.splice_back(early_);
  while (!others.empty()) {
    early_frame& e = others.pop_front();
    if (e.frame.group != group) {
      early_.push_back(e);
      continue;
    }
    const std::unique_ptr<early_frame> owned{&e};
    --peer(e.from).early;
    if (e.frame.kind == kind::left) left.inside[e.from] = false;
    answer_for_left(e.from, e.frame, left);
  }
  leave_group(group, ranks, std::move(left));
}

/// Tells the members that are connected. Others are told when they are.
void world::leave_group(std::uint64_t id, std::span<const std::uint32_t> members,
                        left_group left) noexcept {
  if (!left.is_empty()) left_.insert_or_assign(id, std::move(left));
  for (const std::uint32_t m : members)
    if (is_connected(m)) tell(m, {.kind = kind::left, .group = id});
}

void world::tell_left_groups(const rank_peer& p) noexcept {
  for (const auto& [id, left] : left_) {
    if (left.inside[p.rank]) tell(p.rank, {.kind = kind::left, .group = id});
    if (p.now != rank_peer::state::open) return;
  }
}

void world::on_frame(std::uint32_t from, const group_protocol::frame& f,
                     std::span<const std::byte> bytes, std::optional<std::uint32_t> invalidated) {
  rank_peer& p = peer(from);
  p.was_heard = true;
  if (f.kind == kind::ping) return tell(from, {.kind = kind::pong});
  if (f.kind == kind::pong) return;
  if (f.kind == kind::dead) return on_dead(from, f, bytes);
  if (const auto found = groups_.find(f.group); found != groups_.end()) [[likely]] {
    const counted_ref stay{*found->second};
    return found->second->on_frame(from, f, bytes, invalidated);
  }
  if (const auto left = left_.find(f.group); left != left_.end()) {
    answer_for_left(from, f, left->second);
    if (f.kind == kind::decision) return on_late_decision(f.group, left->second, bytes);
    if (f.kind != kind::left) return;
    left->second.inside[from] = false;
    if (left->second.is_empty()) left_.erase(left);
    return;
  }
  // An answer may come behind the word that its sender has left, and the group is forgotten.
  if (f.kind == kind::written || f.kind == kind::released || f.kind == kind::credit) return;
  if (++p.early > early_frames_max)
    throw_failure(errc::bad_frame, "group",
                  "more frames for groups that are not made yet than one may send");
  early_.push_back(*new early_frame{from, f, bytes});
}

/// Handles the news that a rank is dead, which may be this one.
void world::on_dead(std::uint32_t from, const group_protocol::frame& f,
                    std::span<const std::byte> bytes) {
  if (f.step >= size()) message_protocol::throw_bad_value("dead rank", f.step, "group");
  const std::string_view text{reinterpret_cast<const char*>(bytes.data()),
                              std::min<std::size_t>(bytes.size(), 160)};
  const failure why{.code = errc::rank_failed,
                    .call = "group",
                    .detail = detail_text("told by rank %u: %.*s", unsigned{from}, int(text.size()),
                                          text.data())};
  if (f.step != rank()) return cut_off(f.step, why);
  suspect(peer(from), why);
}

void world::disown_survivors(std::uint64_t of, std::span<const std::uint32_t> members,
                             const std::vector<bool>& alive) noexcept {
  std::vector<std::uint32_t> others;
  for (std::uint32_t r = 0; r < members.size(); ++r)
    if (alive[r]) others.push_back(members[r]);
  disown(survivors::identity(of, alive), others);
}

/// Handles a decision that came when this rank had asked for it, and has left the group since.
void world::on_late_decision(std::uint64_t group, left_group& left,
                             std::span<const std::byte> bitmap) {
  if (left.members.empty()) return;
  const std::vector<std::uint32_t> members = std::exchange(left.members, {});
  const std::vector<bool> alive = survivors::read(bitmap, members.size());
  const auto own = std::size_t(std::ranges::find(members, rank()) - members.begin());
  if (alive[own]) disown_survivors(group, members, alive);
}

void world::answer_for_left(std::uint32_t to, const group_protocol::frame& f,
                            const left_group& left) noexcept {
  if (f.kind == kind::offer) {
    group_protocol::frame answer = f;
    answer.kind = kind::released;
    tell(to, answer);
  }
  if (f.kind == kind::ready && !left.decision.empty())
    tell(to, {.kind = kind::decision, .group = f.group, .step = left.decider}, left.decision);
}

}  // namespace cordma::detail
