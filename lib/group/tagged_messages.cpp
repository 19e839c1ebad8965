#include "tagged_messages.hpp"

#include "base/failures.hpp"
#include "group_context.hpp"

#include <cordma/coro/operation.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace cordma::detail {

using group_protocol::kind;

/// A receive that waits for a message: `came` is that, once there is one.
class tagged_messages::arrival : public operation_base<arrival>,
                                 public list_hook<arrival>,
                                 private suspension {
 public:
  using value_type = void;

  arrival(tagged_messages& m, std::optional<unsigned> of,
          std::optional<std::uint32_t> with) noexcept
      : suspension{&on_stop}, from{of}, tag{with}, messages_{m} {}
  arrival(arrival&&) = delete;
  ~arrival() {
    leave();
    // The task was destroyed: the message is for the next that asks.
    if (came != nullptr) messages_.arrived_.push_front(*came.release());
  }

  bool start(waiter& w, const environment& env) noexcept {
    for (early_frame* e = first(); e != nullptr; e = messages_.arrived_.after(*e)) {
      if (!messages_.is_for(*e, *this)) continue;
      e->unlink();
      came.reset(e);
      return true;
    }
    stopped_ = env.stop.stop_requested();
    if (stopped_ || messages_.group_.failed() || is_sender_gone()) return true;
    messages_.waiting_.push_back(*this);
    if (awaits_peer()) whole().begin_wait(sender());
    if (!from) {
      ++messages_.any_waits_;
      whole().begin_wait_for_any();
    }
    begin(w, env);
    return false;
  }
  [[nodiscard]] bool failed() const noexcept { return came == nullptr; }
  result<void> take_result() noexcept {
    if (came != nullptr) return {};
    if (stopped_) return cancelled_result;
    return messages_.group_.failed() ? *messages_.group_.failed()
                                     : messages_.group_.why_gone(*from);
  }
  void end() noexcept {
    leave();
    suspension::end();
  }
  [[nodiscard]] bool awaits_peer() const noexcept {
    return from && *from != messages_.group_.rank();
  }
  [[nodiscard]] bool is_sender_gone() const noexcept {
    return awaits_peer() && messages_.group_.is_gone(*from);
  }

  const std::optional<unsigned> from;
  const std::optional<std::uint32_t> tag;
  std::unique_ptr<early_frame> came;

 private:
  [[nodiscard]] world& whole() const noexcept { return messages_.group_.whole(); }
  [[nodiscard]] rank_peer& sender() const noexcept {
    return whole().peer(messages_.group_.member(*from));
  }
  void leave() noexcept {
    if (!list_hook<arrival>::is_linked()) return;
    list_hook<arrival>::unlink();
    if (awaits_peer()) whole().end_wait(sender());
    if (!from) --messages_.any_waits_;
  }
  [[nodiscard]] early_frame* first() const noexcept {
    return messages_.arrived_.empty() ? nullptr : &messages_.arrived_.front();
  }
  static void on_stop(stop_callback& callback) noexcept {
    auto& self = static_cast<arrival&>(static_cast<suspension&>(callback));
    self.stopped_ = true;
    self.end();
  }
  tagged_messages& messages_;
  bool stopped_ = false;
};

/// A message on its way to the link. Ends when its bytes are copied. A stop, or the end of its
/// task, withdraws it while it waits for the link.
struct tagged_messages::eager_send : outgoing_frame,
                                     operation_base<eager_send>,
                                     private suspension {
  using value_type = void;
  eager_send(group_context& g, std::uint32_t to, const group_protocol::frame& f,
             std::span<const std::byte> of) noexcept
      : suspension{&on_stop}, group{g}, to_rank{to}, sent{f} {
    group_protocol::encode(f, open_head(group_protocol::header_bytes));
    bytes = of;
    frame.kind = message_protocol::kind::data;
    on_posted = [](outgoing_frame& self, const std::optional<failure>& reason) noexcept {
      auto& s = static_cast<eager_send&>(self);
      s.why = reason;
      s.has_ended = true;
      if (s.is_waiting()) s.suspension::end();
    };
  }
  bool start(waiter& w, const environment& env) noexcept {
    if (has_ended) return true;
    group.whole().begin_wait(peer());
    is_counted = true;
    begin(w, env);
    return false;
  }
  ~eager_send() {
    if (is_counted) group.whole().end_wait(peer());
    if (!has_ended) withdraw();
  }
  [[nodiscard]] bool failed() const noexcept { return is_stopped || why.has_value(); }
  result<void> take_result() noexcept {
    if (is_stopped) return cancelled_result;
    return why ? result<void>{*why} : result<void>{};
  }

 private:
  static void on_stop(stop_callback& callback) noexcept {
    auto& self = static_cast<eager_send&>(static_cast<suspension&>(callback));
    if (!self.list_hook<outgoing_frame>::is_linked()) return;
    self.withdraw();
    self.is_stopped = true;
    self.suspension::end();
  }
  void withdraw() noexcept {
    list_hook<outgoing_frame>::unlink();
    has_ended = true;
    group.return_credit(to_rank, sent);
  }
  [[nodiscard]] rank_peer& peer() const noexcept {
    return group.whole().peer(group.member(to_rank));
  }

  group_context& group;
  const std::uint32_t to_rank;
  const group_protocol::frame sent;
  bool has_ended = false;
  bool is_counted = false;
  bool is_stopped = false;
  std::optional<failure> why;
};

tagged_messages::tagged_messages(group_context& g)
    : group_{g}, transfers_{g, group_protocol::tagged_operation, {}, nullptr}, empties_(g.size()) {}

tagged_messages::~tagged_messages() {
  while (!arrived_.empty()) group_.drop_early(arrived_.front());
}

bool tagged_messages::is_for(const early_frame& e, const arrival& a) const noexcept {
  return (!a.from || group_.rank_of(e.from) == *a.from) && (!a.tag || e.frame.call.root == *a.tag);
}

void tagged_messages::take(early_frame& e) noexcept {
  arrived_.push_back(e);
  arrival* const receive = waiting_.find([&](const arrival& a) { return is_for(e, a); });
  if (receive == nullptr) return;
  e.unlink();
  receive->came.reset(&e);
  receive->end();
}

void tagged_messages::on_arrival(std::uint32_t from, const group_protocol::frame& f,
                                 std::span<const std::byte> bytes) {
  if (group_.failed()) return;
  intrusive_list<early_frame> one;
  group_.keep_early(one, from, f, bytes);
  take(one.pop_front());
}

void tagged_messages::on_retract(std::uint32_t from, const group_protocol::frame& f) noexcept {
  early_frame* const announced = arrived_.find([&](const early_frame& e) {
    return e.frame.kind == kind::announce && e.frame.step == f.step &&
           group_.rank_of(e.from) == from;
  });
  // A receive that has offered memory hears of it by the answer.
  if (announced != nullptr) group_.drop_early(*announced);
}

void tagged_messages::on_rank_gone(std::uint32_t /*rank*/) noexcept {
  while (arrival* const a = waiting_.find([](const arrival& w) { return w.is_sender_gone(); }))
    a->end();
}

void tagged_messages::fail(const failure& why) noexcept {
  transfers_.fail(why);
  while (!arrived_.empty()) group_.drop_early(arrived_.front());
  while (!waiting_.empty()) waiting_.front().end();
}

task<> tagged_messages::send(counted_ref<group_context> g, const_local_mr_slice bytes,
                             std::uint32_t to, std::uint32_t tag) {
  const environment env = co_await current_environment();
  if (env.stop.stop_requested()) throw cancelled{};
  group_context& group = *g.get();
  tagged_messages& messages = group.by_tag();
  if (group.failed()) throw error{*group.failed()};
  group_protocol::frame f{.kind = kind::eager,
                          .group = group.id(),
                          .operation = group_protocol::tagged_operation,
                          .step = ++messages.last_number_,
                          .length = bytes.size_bytes()};
  f.call.root = tag;
  if (to == group.rank()) co_return messages.on_arrival(to, f, bytes.bytes());
  const bool is_small = bytes.size_bytes() <= group.whole().eager_max();
  if (is_small && group.try_take_credit(to, f.operation)) {
    f.credits = group.take_owed(to, f.operation);
    eager_send message{group, to, f, bytes.bytes()};
    group.whole().send(group.member(to), message);
    const auto sent = co_await as_result(message);
    if (sent.is_cancelled()) throw cancelled{};
    if (sent.has_failure()) group.fail_for(sent.failure(), to);
    if (group.failed()) throw error{*group.failed()};
    co_return;
  }
  if (messages.transfers_.messages() >= announced_max || messages.empties_[to] >= announced_max)
    throw_failure(errc::limit_exceeded, "group::send",
                  detail_text("%u messages by tag wait for their receives, the most there can be",
                              unsigned{announced_max}));
  f.kind = kind::announce;
  group.whole().tell(group.member(to), f);
  if (bytes.empty()) {
    // No receive has memory to offer for it, so nothing is left to do.
    ++messages.empties_[to];
    co_return;
  }
  outgoing message{messages.transfers_, to, f.step, bytes};
  struct retraction : stop_callback {
    retraction(collective& c, outgoing& m) noexcept
        : stop_callback{[](stop_callback& self) noexcept {
            auto& r = static_cast<retraction&>(self);
            r.transfers.let_go(r.message);
          }},
          transfers{c},
          message{m} {}
    collective& transfers;
    outgoing& message;
  };
  retraction on_stop{messages.transfers_, message};
  if (!message.has_ended()) env.stop.register_callback(on_stop);
  static_cast<void>(co_await as_result(message));
  if (!message.failed()) co_return;
  if (group.failed()) throw error{*group.failed()};
  f.kind = kind::retract;
  group.whole().tell(group.member(to), f);
  throw cancelled{};
}

task<group::message> tagged_messages::receive(counted_ref<group_context> g, local_mr_slice into,
                                              std::optional<unsigned> from,
                                              std::optional<std::uint32_t> tag) {
  group_context& group = *g.get();
  tagged_messages& messages = group.by_tag();
  for (;;) {
    arrival next{messages, from, tag};
    co_await next;
    const group_protocol::frame f = next.came->frame;
    const unsigned sender = *group.rank_of(next.came->from);
    const group::message about{
        .from = sender, .tag = f.call.root, .size_bytes = std::size_t(f.length)};
    if (f.length > into.size_bytes()) {
      throw_failure(
          errc::wrong_length, "group::receive",
          detail_text("the message of rank %u has %llu bytes, the memory %zu: receive it "
                      "again with more",
                      sender, static_cast<unsigned long long>(f.length), into.size_bytes()));
    }
    if (f.kind == kind::eager) {
      const std::span<const std::byte> bytes = next.came->bytes();
      if (!bytes.empty()) std::memcpy(into.bytes().data(), bytes.data(), bytes.size());
      group.drop_early(*next.came.release());
      if (sender != group.rank()) group.consumed(sender, f.operation);
      co_return about;
    }
    group.drop_early(*next.came.release());
    if (about.size_bytes == 0) {
      // The sender counts the messages that nobody has taken.
      group.whole().tell(
          group.member(sender),
          {.kind = kind::credit, .group = group.id(), .operation = f.operation, .step = f.step});
      co_return about;
    }
    incoming message{messages.transfers_, sender, f.step, into.first(about.size_bytes)};
    static_cast<void>(co_await as_result(message));
    if (!message.failed()) co_return about;
    if (group.failed()) throw error{*group.failed()};
    // The sender was stopped, and let go of the message.
  }
}

}  // namespace cordma::detail
