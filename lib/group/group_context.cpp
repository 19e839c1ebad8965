#include "group_context.hpp"

#include "base/caught.hpp"
#include "base/failures.hpp"

#include <algorithm>
#include <cinttypes>
#include <exception>
#include <memory>
#include <utility>

namespace cordma::detail {

using group_protocol::kind;
using group_protocol::signature;

namespace {

/// After so many consumed messages the peer is told, unless a message tells it earlier.
constexpr std::uint8_t credits_per_frame = group_context::eager_window / 2;

constexpr std::size_t text_max = 160;

constexpr std::size_t lane_of(std::uint64_t operation) noexcept {
  return operation == group_protocol::tagged_operation ? 1 : 0;
}

/// The lengths that all ranks know, as one number. Of scatter, gather and all_to_all with uneven
/// blocks, no rank knows all.
std::uint64_t bytes_of(const collective_call& call, std::uint32_t size) noexcept {
  switch (call.kind) {
    case collective_kind::barrier: return 0;
    case collective_kind::broadcast:
    case collective_kind::all_reduce: return call.out.size_bytes();
    case collective_kind::reduce:
    case collective_kind::scan: return call.in.size_bytes();
    case collective_kind::scatter:
    case collective_kind::gather: return call.is_uneven ? UINT64_MAX : call.blocks.each;
    case collective_kind::all_to_all:
      return call.blocks.of.empty() && call.received.of.empty() ? call.blocks.each : UINT64_MAX;
    case collective_kind::all_gather:
    case collective_kind::reduce_scatter: break;
  }
  if (call.blocks.of.empty()) return call.blocks.each;
  std::uint64_t all = 0;
  for (std::uint32_t r = 0; r < size; ++r) all = mixed(all, call.blocks.at(r));
  return all | std::uint64_t{1} << 63;
}

bool has_root(collective_kind k) noexcept {
  return k == collective_kind::broadcast || k == collective_kind::scatter ||
         k == collective_kind::gather || k == collective_kind::reduce;
}

}  // namespace

fixed_text<240> to_text(const signature& s) noexcept {
  const char* const name = to_string(s.kind);
  std::array<char, 32> root{};
  if (has_root(s.kind)) std::snprintf(root.data(), root.size(), "root %" PRIu32 ", ", s.root);
  std::array<char, 32> reduction{};
  if (s.reduction != 0)
    std::snprintf(reduction.data(), reduction.size(), "reduction %u, ", unsigned{s.reduction});
  if (s.bytes >> 63 != 0)
    return detail_text("%s(%s%suneven blocks %" PRIx64 ")", name, root.data(), reduction.data(),
                       s.bytes);
  return detail_text("%s(%s%s%" PRIu64 " bytes)", name, root.data(), reduction.data(), s.bytes);
}

group_context::group_context(counted_ref<world> w, std::uint64_t id,
                             std::vector<std::uint32_t> members)
    : world_{std::move(w)},
      id_{id},
      members_{std::move(members)},
      has_left_(members_.size()),
      credits_(members_.size()),
      by_tag_{*this},
      vote_{*this} {
  for (std::uint32_t r = 0; r < size(); ++r) ranks_.emplace_back(members_[r], r);
  std::ranges::sort(ranks_);
  rank_ = *rank_of(whole().rank());
  std::vector<std::uint64_t> hosts;
  hosts.reserve(members_.size());
  for (const std::uint32_t m : members_) hosts.push_back(whole().met().members[m].host);
  hosts_.emplace(hosts);
}

counted_ref<group_context> group_context::make(counted_ref<world> w, std::uint64_t id,
                                               std::vector<std::uint32_t> members) {
  counted_ref made{*new group_context{std::move(w), id, std::move(members)}};
  group_context& c = *made.get();
  c.whole().add(c);
  for (std::uint32_t r = 0; r < c.size(); ++r)
    if (c.whole().is_dead(c.members_[r])) c.fail_for_gone(r);
  return made;
}

group_context::~group_context() {
  vote_.drop();
  whole().remove(*this);
  while (!early_.empty()) {
    early_frame& e = early_.front();
    if (e.frame.kind == kind::offer) release(*rank_of(e.from), e.frame);
    drop_early(e);
  }
}

std::optional<std::uint32_t> group_context::rank_of(std::uint32_t of_whole) const noexcept {
  const auto at = std::ranges::lower_bound(ranks_, std::pair{of_whole, std::uint32_t{0}});
  if (at == ranks_.end() || at->first != of_whole) return std::nullopt;
  return at->second;
}

std::uint64_t group_context::next_id() noexcept { return mixed(id_, ++descendants_); }

// ---- operations

/// Owns an operation in its task.
class group_context::run_guard {
 public:
  run_guard(group_context& g, const collective_call& call, const environment& env)
      : group_{g}, op_{&g.begin(call)}, stop_{*this} {
    env.stop.register_callback(stop_);
  }
  run_guard(const run_guard&) = delete;
  ~run_guard() {
    if (op_ == nullptr) return;
    collective& left = take();
    group_.ending_.push_back(left);
    left.abandon(group_.left_in_the_middle(name_));
  }
  [[nodiscard]] collective& op() const noexcept { return *op_; }
  /// The operation is settled.
  void finish() noexcept {
    delete &take();
    group_.send_stalled();  // Another operation may be the oldest now.
  }

 private:
  struct stop_watch : stop_callback {
    explicit stop_watch(run_guard& g) noexcept
        : stop_callback{[](stop_callback& self) noexcept {
            run_guard& run = static_cast<stop_watch&>(self).guard;
            const failure why = run.group_.left_in_the_middle(run.name_);
            run.op_->fail(why, true);
            run.group_.fail(why, run.group_.rank());
          }},
          guard{g} {}
    run_guard& guard;
  };
  collective& take() noexcept {
    stop_.unlink();
    op_->unlink();
    --group_.running_count_;
    return *std::exchange(op_, nullptr);
  }
  group_context& group_;
  collective* op_;
  const char* const name_ = group_.name_of(*op_);
  stop_watch stop_;
};

task<> group_context::run(counted_ref<group_context> self, collective_call call) {
  const algorithm_table& table = self->whole().algorithms();
  return run(std::move(self), call, table);
}

task<> group_context::run(counted_ref<group_context> self, collective_call call,
                          const algorithm_table& table) {
  const environment env = co_await current_environment();
  if (env.stop.stop_requested()) throw cancelled{};
  run_guard guard{*self.get(), call, env};
  std::exception_ptr why;
  try {
    co_await detail::run(guard.op(), call, table);
  } catch (...) {
    why = std::current_exception();
  }
  if (why != nullptr && !guard.op().has_failed()) {
    try {
      std::rethrow_exception(why);
    } catch (...) {
      self->fail(caught(self->name_of(guard.op())), self->rank());
    }
  }
  co_await guard.op().settled();
  guard.finish();
  if (why != nullptr) std::rethrow_exception(why);
}

collective& group_context::begin(const collective_call& call) {
  const char* const name = to_string(call.kind);
  if (failed_) throw error{*failed_};
  if (running_count_ == running_max)
    throw_failure(errc::limit_exceeded, name,
                  detail_text("%u operations of this group are under way, the most there can be",
                              unsigned{running_max}));
  const signature s{
      .kind = call.kind,
      .reduction = call.reduction != nullptr ? call.reduction->name : std::uint16_t{0},
      .root = call.root,
      .bytes = bytes_of(call, size())};
  auto* const op = new collective{*this, next_operation_, s, call.reduction};
  ++whole().counted.operations;
  history_[next_operation_ % history_.size()] = s;
  ++next_operation_;
  ++running_count_;
  running_.push_back(*op);
  intrusive_list<early_frame> all;
  all.splice_back(early_);
  while (!all.empty()) {
    early_frame& e = all.pop_front();
    if (e.frame.operation != op->number() || failed_) {
      early_.push_back(e);
      continue;
    }
    const counted_ref stay{*this};
    --whole().peer(e.from).early;
    const std::unique_ptr<early_frame> owned{&e};
    try {
      on_message(*rank_of(e.from), e.frame, e.bytes());
    } catch (...) {
      whole().cut_off(e.from, caught(name));
    }
  }
  return *op;
}

const char* group_context::name_of(const collective& c) const noexcept {
  return c.is_by_tag() ? "group::send" : to_string(c.call().kind);
}

failure group_context::left_in_the_middle(const char* name) const noexcept {
  return {.code = errc::rank_failed,
          .call = name,
          .object = {"rank", rank_},
          .detail = detail_text("rank %u was stopped in the middle of it", unsigned{rank_})};
}

// ---- failing

void group_context::fail(const failure& why, std::uint32_t culprit) noexcept {
  if (failed_) return;
  const counted_ref stay{*this};
  failed_ = why;
  if (failed_->object.kind == nullptr) failed_->object = {"rank", culprit};
  group_protocol::frame f{.kind = kind::broken, .group = id_, .step = members_[culprit]};
  f.call.root =
      std::uint32_t(why.code == errc::ranks_disagree ? errc::ranks_disagree : errc::rank_failed);
  try {
    whole().spread(
        members_, rank_, f,
        std::string{why.detail.empty() ? why.to_string() : std::string{why.detail.view()}, 0,
                    text_max});
  } catch (const std::bad_alloc&) {
    // Other ranks find out by themselves.
  }
  end_all(*failed_);
}

void group_context::end_all(const failure& why) noexcept {
  while (!stalled_.empty()) stalled_.pop_front();
  intrusive_list<collective> all;
  all.splice_back(running_);
  while (!all.empty()) {
    collective& c = all.pop_front();
    running_.push_back(c);
    c.fail(why);
  }
  by_tag_.fail(why);
  while (!early_.empty()) {
    early_frame& e = early_.front();
    if (e.frame.kind == kind::offer) release(*rank_of(e.from), e.frame);
    drop_early(e);
  }
}

void group_context::fail_for(const failure& why, std::uint32_t rank) noexcept {
  if (failed_) return;
  fail({.code = errc::rank_failed,
        .call = "group",
        .object = {"rank", rank},
        .detail = detail_text("rank %u is lost: %.150s", unsigned{rank}, why.to_string().c_str())},
       rank);
}

void group_context::fail_for_gone(std::uint32_t rank) noexcept { fail(why_gone(rank), rank); }

failure group_context::why_gone(std::uint32_t rank) const noexcept {
  const rank_peer* const p = whole().known_peer(members_[rank]);
  const bool is_dead = p != nullptr && p->now == rank_peer::state::dead;
  return {.code = errc::rank_failed,
          .call = "group",
          .object = {"rank", rank},
          .detail = is_dead ? detail_text("rank %u is lost: %.150s", unsigned{rank},
                                          p->why->to_string().c_str())
                            : detail_text("rank %u has left", unsigned{rank})};
}

void group_context::on_rank_gone(std::uint32_t of_whole) noexcept {
  const std::optional<std::uint32_t> rank = rank_of(of_whole);
  if (!rank) return;
  bool ends = whole().is_dead(of_whole) || by_tag_.transfers().waits_for(*rank);
  running_.for_each([&](collective& c) { ends = ends || c.waits_for(*rank); });
  if (ends) fail_for_gone(*rank);
  by_tag_.on_rank_gone(*rank);
  vote_.on_rank_gone();
}

void group_context::disagree(std::uint32_t from, const signature& theirs,
                             const signature& ours) noexcept {
  const std::string a{to_text(theirs).view()};
  const std::string b{to_text(ours).view()};
  fail({.code = errc::ranks_disagree,
        .call = to_string(ours.kind),
        .object = {"rank", from},
        .detail = detail_text("rank %u calls %.80s, rank %u %.80s", unsigned{from}, a.c_str(),
                              unsigned{rank_}, b.c_str())},
       from);
}

void group_context::on_broken(std::uint32_t from, const group_protocol::frame& f,
                              std::span<const std::byte> bytes) noexcept {
  const std::string_view text{reinterpret_cast<const char*>(bytes.data()),
                              std::min(bytes.size(), text_max)};
  const bool is_disagreement = f.call.root == std::uint32_t(errc::ranks_disagree);
  const std::uint32_t culprit = rank_of(f.step).value_or(from);
  fail({.code = is_disagreement ? errc::ranks_disagree : errc::rank_failed,
        .call = "group",
        .object = {"rank", culprit},
        .detail = detail_text("rank %u says: %.*s", unsigned{from}, int(text.size()), text.data())},
       culprit);
}

// ---- frames

void group_context::on_frame(std::uint32_t of_whole, const group_protocol::frame& f,
                             std::span<const std::byte> bytes,
                             std::optional<std::uint32_t> invalidated) {
  const std::optional<std::uint32_t> from = rank_of(of_whole);
  if (!from)
    message_protocol::throw_bad_frame("speaks to a group that its rank is no member of", "group");
  if (f.credits != 0) on_credit(*from, f);
  switch (f.kind) {
    case kind::eager:
    case kind::offer:
    case kind::announce: return on_message(*from, f, bytes);
    case kind::written:
    case kind::released: {
      collective* const op = find(f.operation);
      // An operation that has left its memory is settled: nobody has its memory any more.
      if (op != nullptr) op->on_answer(*from, f, invalidated);
      return;
    }
    case kind::retract: return by_tag_.on_retract(*from, f);
    case kind::broken: return on_broken(*from, f, bytes);
    case kind::left: return on_rank_left(*from);
    case kind::ready: return vote_.on_ready(*from);
    case kind::decision: return vote_.on_decision(f.step, bytes);
    case kind::credit:
      if (f.step != 0) by_tag_.on_taken(*from);
      return;
    case kind::ping:
    case kind::pong:
    case kind::dead: return;
  }
}

collective* group_context::find(std::uint64_t operation) noexcept {
  if (operation == group_protocol::tagged_operation) return &by_tag_.transfers();
  collective* const op =
      running_.find([&](const collective& c) { return c.number() == operation; });
  return op != nullptr ? op
                       : ending_.find([&](const collective& c) { return c.number() == operation; });
}

void group_context::on_rank_left(std::uint32_t rank) noexcept {
  has_left_[rank] = true;
  on_rank_gone(members_[rank]);
}

void group_context::on_message(std::uint32_t from, const group_protocol::frame& f,
                               std::span<const std::byte> bytes) {
  if (failed_) {
    if (f.kind == kind::offer) release(from, f);
    return;
  }
  if (f.operation == group_protocol::tagged_operation) {
    if (f.kind == kind::offer) return by_tag_.transfers().on_offer(from, f);
    return by_tag_.on_arrival(from, f, bytes);
  }
  if (f.operation >= next_operation_) return keep_early(early_, from, f, bytes);
  collective* const op = find(f.operation);
  const bool is_known = op != nullptr || next_operation_ - f.operation <= history_.size();
  const signature& ours = op != nullptr ? op->call() : history_[f.operation % history_.size()];
  if (is_known && f.call != ours) {
    if (f.kind == kind::offer) release(from, f);
    return disagree(from, f.call, ours);
  }
  if (op == nullptr)
    message_protocol::throw_bad_value("a message of an operation that has ended:", f.operation,
                                      "group");
  if (f.kind == kind::offer) return op->on_offer(from, f);
  op->on_eager(from, f, bytes);
}

void group_context::release(std::uint32_t rank, const group_protocol::frame& offer) noexcept {
  group_protocol::frame answer = offer;
  answer.kind = kind::released;
  answer.credits = 0;
  if (rank != rank_) whole().tell(members_[rank], answer);
}

void group_context::keep_early(intrusive_list<early_frame>& in, std::uint32_t rank,
                               const group_protocol::frame& f, std::span<const std::byte> bytes) {
  rank_peer& p = whole().peer(members_[rank]);
  if (p.early >= early_frames_max && rank != rank_)
    message_protocol::throw_bad_frame("has more messages here than it has credits for", "group");
  in.push_back(*new early_frame{members_[rank], f, bytes});
  ++whole().counted.early;
  ++p.early;
}

void group_context::drop_early(early_frame& e) noexcept {
  --whole().peer(e.from).early;
  delete &e;
}

// ---- credits

bool group_context::try_take_credit(std::uint32_t rank, std::uint64_t operation) noexcept {
  std::uint8_t& unconsumed = credits_[rank].unconsumed[lane_of(operation)];
  if (unconsumed == eager_window) return false;
  ++unconsumed;
  return true;
}

bool group_context::may_send(const outbound& o) noexcept {
  const bool is_oldest = !running_.empty() && &running_.front() == &o.op;
  return credits_[o.peer].unconsumed[0] < (is_oldest ? eager_window : younger_window);
}

void group_context::send_or_stall(outbound& o) noexcept {
  if (may_send(o)) [[likely]] {
    ++credits_[o.peer].unconsumed[0];
    return o.op.send_eager(o);
  }
  ++whole().counted.credit_waits;
  stalled_.push_back(static_cast<outgoing_frame&>(o));
}

void group_context::send_stalled() noexcept {
  for (;;) {
    outgoing_frame* const next = stalled_.find(
        [this](const outgoing_frame& o) { return may_send(static_cast<const outbound&>(o)); });
    if (next == nullptr) return;
    next->unlink();
    auto& o = static_cast<outbound&>(*next);
    ++credits_[o.peer].unconsumed[0];
    o.op.send_eager(o);
  }
}

std::uint32_t group_context::take_owed(std::uint32_t rank, std::uint64_t operation) noexcept {
  return std::exchange(credits_[rank].owed[lane_of(operation)], std::uint8_t{0});
}

void group_context::return_credit(std::uint32_t rank,
                                  const group_protocol::frame& unsent) noexcept {
  const std::size_t lane = lane_of(unsent.operation);
  // A peer that gave too many credits has taken this one's.
  if (credits_[rank].unconsumed[lane] != 0) --credits_[rank].unconsumed[lane];
  credits_[rank].owed[lane] = std::uint8_t(credits_[rank].owed[lane] + unsent.credits);
}

void group_context::consumed(std::uint32_t rank, std::uint64_t operation) noexcept {
  if (++credits_[rank].owed[lane_of(operation)] < credits_per_frame) return;
  group_protocol::frame f{.kind = kind::credit, .group = id_, .operation = operation};
  f.credits = take_owed(rank, operation);
  whole().tell(members_[rank], f);
}

void group_context::on_credit(std::uint32_t from, const group_protocol::frame& f) {
  std::uint8_t& unconsumed = credits_[from].unconsumed[lane_of(f.operation)];
  unconsumed = std::uint8_t(unconsumed - std::min<std::uint32_t>(unconsumed, f.credits));
  // Messages by tag are announced, and do not stall.
  if (lane_of(f.operation) == 0) send_stalled();
}

}  // namespace cordma::detail
