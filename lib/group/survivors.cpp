#include "survivors.hpp"

#include "base/failures.hpp"
#include "group_context.hpp"

#include <algorithm>

namespace cordma::detail {

using group_protocol::kind;

survivors::survivors(group_context& g)
    : group_{g}, ready_(g.size()), awaited_(g.size()), decided_{g.whole().executor()} {}

std::uint32_t survivors::lowest() const noexcept {
  std::uint32_t r = 0;
  while (r != group_.rank() && group_.is_gone(r)) ++r;
  return r;
}

task<std::vector<bool>> survivors::agree(counted_ref<group_context> g) {
  survivors& s = g->vote();
  s.is_asking_ = true;
  if (!s.decision_) s.ask();
  co_await s.decided_.wait();
  if (g->whole().why_cut_off()) throw error{*g->whole().why_cut_off()};
  if (!(*s.decision_)[g->rank()])
    throw_failure(errc::rank_failed, "group::shrink",
                  detail_text("the others have cut off this one, rank %u", g->rank()));
  co_return *s.decision_;
}

std::uint64_t survivors::identity(std::uint64_t of, const std::vector<bool>& alive) noexcept {
  std::uint64_t id = ~of;
  for (std::uint32_t r = 0; r < alive.size(); ++r)
    if (alive[r]) id = mixed(id, r);
  return id;
}

std::vector<bool> survivors::read(std::span<const std::byte> bitmap, std::size_t ranks) {
  if (bitmap.size() != (ranks + 7) / 8)
    message_protocol::throw_bad_value("the bytes of a decision are", bitmap.size(), "group");
  std::vector<bool> alive(ranks);
  for (std::size_t r = 0; r < ranks; ++r)
    alive[r] = (std::to_integer<unsigned>(bitmap[r / 8]) >> r % 8 & 1) != 0;
  return alive;
}

void survivors::drop() noexcept {
  for (std::uint32_t r = 0; r < group_.size(); ++r)
    if (group_.whole().is_connected(group_.member(r))) pass_on(r);
  if (!decision_ || !(*decision_)[group_.rank()] || has_rest_) return;
  group_.whole().disown_survivors(group_.id(), group_.members(), *decision_);
}

/// Asks the rank that decides; if that is this one, waits for the others.
void survivors::ask() noexcept {
  const std::uint32_t decider = lowest();
  asked_ = std::max(asked_, decider);
  if (decider == group_.rank()) {
    for (std::uint32_t r = 0; r < group_.size(); ++r)
      if (r != group_.rank() && !ready_[r] && !group_.is_gone(r)) want(r);
    return try_to_decide();
  }
  want(decider);
}

/// Asks the rank that decides, or one that may have heard a decision.
void survivors::want(std::uint32_t rank) noexcept {
  if (awaited_[rank]) return;
  awaited_[rank] = true;
  rank_peer& p = group_.whole().peer(group_.member(rank));
  group_.whole().begin_wait(p);
  group_.whole().tell(p.rank, {.kind = kind::ready, .group = group_.id()});
}

void survivors::end_waits() noexcept {
  for (std::uint32_t r = 0; r < group_.size(); ++r) {
    if (!awaited_[r]) continue;
    awaited_[r] = false;
    group_.whole().end_wait(group_.whole().peer(group_.member(r)));
  }
}

void survivors::try_to_decide() noexcept {
  if (!is_asking_ || decision_ || lowest() != group_.rank()) return;
  std::vector<bool> alive(group_.size());
  for (std::uint32_t r = 0; r < group_.size(); ++r) {
    alive[r] = r == group_.rank() || !group_.is_gone(r);
    if (alive[r] && r != group_.rank() && !ready_[r]) return;
  }
  settle(std::move(alive), group_.rank());
  tell_all();
}

void survivors::settle(std::vector<bool> alive, std::uint32_t decider) noexcept {
  decision_ = std::move(alive);
  decider_ = decider;
  end_waits();
  decided_.set();
}

std::string survivors::bitmap() const {
  if (!decision_) return {};
  std::string map((group_.size() + 7) / 8, '\0');
  for (std::uint32_t r = 0; r < group_.size(); ++r)
    if ((*decision_)[r]) map[r / 8] = char(map[r / 8] | 1 << r % 8);
  return map;
}

void survivors::tell(std::uint32_t rank) noexcept {
  try {
    group_.whole().tell(group_.member(rank),
                        {.kind = kind::decision, .group = group_.id(), .step = decider_}, bitmap());
  } catch (const std::bad_alloc&) {
    group_.whole().cut_off(group_.member(rank), errno_failure(ENOMEM, "group::shrink"));
  }
}

/// Tells ranks that have left the group, too: they may be survivors without knowing.
void survivors::tell_all() noexcept {
  for (std::uint32_t r = 0; r < group_.size(); ++r)
    if (r != group_.rank() && (*decision_)[r] && !group_.whole().is_gone(group_.member(r))) tell(r);
}

void survivors::on_ready(std::uint32_t from) noexcept {
  ready_[from] = true;
  if (decision_) return tell(from);
  try_to_decide();
}

void survivors::on_decision(std::uint32_t decider, std::span<const std::byte> bitmap) {
  std::vector<bool> alive = read(bitmap, group_.size());
  if (decider >= group_.size())
    message_protocol::throw_bad_value("a decision is made by rank", decider, "group");
  if (decision_) return;
  const bool decides = is_asking_ && lowest() == group_.rank();
  // The decider that this rank has asked counts on it.
  if (decider < asked_ && !decides) return;
  settle(std::move(alive), decides ? group_.rank() : decider);
  if (decides) tell_all();
}

void survivors::on_rank_gone() noexcept {
  if (decision_) return tell_all();
  if (is_asking_) ask();
}

}  // namespace cordma::detail
