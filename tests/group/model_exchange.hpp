#pragma once

#include "group/algorithm_table.hpp"
#include "group/exchange.hpp"
#include "group/host_map.hpp"
#include "support/allocations.hpp"

#include <cordma/coro/scheduler.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace model {

using namespace cordma;
using namespace cordma::detail;

/// A mistake of an algorithm.
struct mistake : std::logic_error {
  using std::logic_error::logic_error;
};

/// Counts what one rank has done.
struct tally {
  std::size_t messages = 0;
  std::size_t bytes = 0;
  std::size_t copied = 0;
  std::vector<unsigned> peer_list;  ///< One for each message, in either direction.
  unsigned time = 0;                ///< Messages that followed each other, up to now.
  [[nodiscard]] std::set<unsigned> peers() const { return {peer_list.begin(), peer_list.end()}; }
};

/// All ranks of a group, in one process and without connections. A seed chooses which rank goes on,
/// which message arrives when, and whether it waits for its receiver. `Memory` has the bytes.
template <class Memory>
class model_group {
 public:
  class rank_exchange;

  model_group(unsigned ranks, unsigned seed, Memory& memory, const host_map* hosts = nullptr)
      : memory_{memory}, hosts_{hosts}, random_{seed}, tallies_(ranks) {
    for (unsigned rank = 0; rank < ranks; ++rank)
      exchanges_.push_back(std::make_unique<rank_exchange>(*this, rank, ranks));
  }

  [[nodiscard]] unsigned size() const { return unsigned(exchanges_.size()); }
  [[nodiscard]] const tally& of(unsigned rank) const { return tallies_[rank]; }
  [[nodiscard]] rank_exchange& exchange_of(unsigned rank) { return *exchanges_[rank]; }
  /// Makes the operation fail after so many events.
  void fail_after(std::size_t events) { events_left_ = events; }
  /// Makes a rank begin when the others cannot go on without it.
  void begin_last(unsigned rank) { last_ = rank; }
  /// Returns how many ranks ended before that one began.
  [[nodiscard]] unsigned ended_early() const { return ended_early_; }
  /// Returns the allocations of the algorithms so far, without the model's own.
  [[nodiscard]] std::uint64_t allocations() const { return allocations_; }

  /// Runs the call of each rank to the end. Returns how many failed, for the model's reason.
  /// \errors mistake: an algorithm's, which has left messages, or waits for ever.
  std::size_t run(const std::vector<collective_call>& calls, const algorithm_table& table) {
    std::vector<runner> runners(size());
    run_events(runners, calls, table);
    std::size_t failed = 0;
    for (unsigned rank = 0; rank < size(); ++rank) {
      if (!runners[rank].has_ended)
        throw mistake{mistake_.value_or("rank " + std::to_string(rank) + " waits for ever")};
      failed += runners[rank].work->take_result().has_failure();
    }
    if (failed == 0)
      for (const auto& [name, message] : messages_)
        expect(message.in == nullptr && message.out == nullptr && message.is_received, "is left",
               name);
    if (mistake_) throw mistake{*mistake_};
    return failed;
  }
  /// Runs until so many events have happened, and destroys the operations. Returns true if all had
  /// ended.
  bool run_for(std::size_t events, const std::vector<collective_call>& calls,
               const algorithm_table& table) {
    std::vector<runner> runners(size());
    events_max_ = events;
    is_given_up_ = true;
    run_events(runners, calls, table);
    return std::ranges::all_of(runners, &runner::has_ended);
  }
  /// Returns how many transfers are posted.
  [[nodiscard]] std::size_t posted() const {
    std::size_t count = 0;
    for (const auto& [n, m] : messages_) count += (m.in != nullptr) + (m.out != nullptr);
    return count;
  }

 private:
  struct name {
    unsigned from;
    unsigned to;
    std::uint32_t step;
    bool operator==(const name&) const = default;
  };
  struct hash {
    std::size_t operator()(const name& n) const {
      return (n.from * std::size_t(0x9e3779b97f4a7c15) ^ n.to) * 0x100000001b3 ^ n.step;
    }
  };
  struct message {
    incoming* in = nullptr;
    outgoing* out = nullptr;
    std::optional<std::size_t> bytes;
    std::optional<typename Memory::snapshot> content;
    unsigned sent_at = 0;
    bool is_sent = false;      // A send was posted.
    bool is_eager = false;     // The send ends without the receiver.
    bool is_expected = false;  // A receive was posted.
    bool is_received = false;
  };
  using named_message = std::pair<const name, message>;
  struct runner : waiter {
    runner() : waiter{&end} {}
    static std::coroutine_handle<> end(waiter& self) noexcept {
      static_cast<runner&>(self).has_ended = true;
      return std::noop_coroutine();
    }
    std::optional<task<>> work;
    bool has_ended = false;
  };
  enum class change { send_ends, receive_ends };
  struct event {
    runner* start = nullptr;  // A rank begins; null: a message changes.
    named_message* of = nullptr;
    change what{};
  };

  void run_events(std::vector<runner>& runners, const std::vector<collective_call>& calls,
                  const algorithm_table& table) {
    for (unsigned rank = 0; rank < size(); ++rank)
      if (rank != last_) events_.push_back({&runners[rank], nullptr, {}});
    while (true) {
      if (!events_.empty() && (!scheduler_.has_ready() || random_() % 2 == 0)) {
        if (events_max_-- == 0) return;
        happen(take_event(), runners, calls, table);
      } else if (scheduler_.has_ready()) {
        counted([&] { scheduler_.run_ready(); });
      } else if (last_) {
        ended_early_ = unsigned(std::ranges::count_if(runners, &runner::has_ended));
        events_.push_back({&runners[*std::exchange(last_, {})], nullptr, {}});
      } else {
        break;
      }
    }
  }
  /// Calls `f`, which runs algorithms.
  template <class Function>
  void counted(Function f) {
    const std::uint64_t before = support::thread_allocation_count();
    const std::uint64_t own_before = own_allocations_;
    f();
    allocations_ += support::thread_allocation_count() - before - (own_allocations_ - own_before);
  }
  /// Calls `f` of the model, which an algorithm has called.
  template <class Function>
  auto own(Function f) {
    struct counter {
      ~counter() { sum += support::thread_allocation_count() - before; }
      std::uint64_t& sum;
      std::uint64_t before = support::thread_allocation_count();
    };
    const counter c{own_allocations_};
    return f();
  }
  event take_event() {
    std::swap(events_[random_() % events_.size()], events_.back());
    const event taken = events_.back();
    events_.pop_back();
    return taken;
  }
  void happen(const event& e, std::vector<runner>& runners,
              const std::vector<collective_call>& calls, const algorithm_table& table) {
    if (!has_failed_ && events_left_-- == 0) fail();
    if (e.start != nullptr) {
      const auto rank = std::size_t(e.start - runners.data());
      counted([&] {
        e.start->work.emplace(run_unchecked(*exchanges_[rank], calls[rank], table));
        e.start->has_ended = e.start->work->start(*e.start, {&scheduler_, {}});
      });
      return;
    }
    auto& [n, m] = *e.of;
    if (e.what == change::send_ends) {
      if (m.out == nullptr) return;
      if (!m.is_received) m.content = memory_.read(m.out->memory);
      std::exchange(m.out, nullptr)->end(false);
      return;
    }
    if (m.in == nullptr) return;
    memory_.write(m.in->memory, m.content ? *m.content : memory_.read(m.out->memory));
    m.content.reset();
    m.is_received = true;
    unsigned& time = tallies_[n.to].time;
    time = std::max(time, m.sent_at + 1);
    std::exchange(m.in, nullptr)->end(false);
  }
  void fail() {
    has_failed_ = true;
    for (auto& [name, m] : messages_) {
      if (m.in != nullptr) std::exchange(m.in, nullptr)->end(true);
      if (m.out != nullptr) std::exchange(m.out, nullptr)->end(true);
    }
  }
  /// Notes the first mistake: an exchange's functions throw nothing.
  void expect(bool is_right, const char* what, const name& n) {
    if (is_right || mistake_) return;
    mistake_ = "the message from " + std::to_string(n.from) + " to " + std::to_string(n.to) +
               ", step " + std::to_string(n.step) + ' ' + what;
  }
  /// Goes on with a message of which one side was posted.
  void advance(named_message& of, std::size_t bytes) {
    auto& [n, m] = of;
    expect(n.from != n.to && n.from < size() && n.to < size(), "has no peer", n);
    expect(m.bytes.value_or(bytes) == bytes, "has two lengths", n);
    m.bytes = bytes;
    if (!m.is_sent || !m.is_expected) return;
    events_.push_back({nullptr, &of, change::receive_ends});
    if (!m.is_eager) events_.push_back({nullptr, &of, change::send_ends});
  }
  void post(unsigned from, outgoing& posted) {
    if (has_failed_) return posted.end(true);
    named_message& of = *messages_.try_emplace({from, posted.peer(), posted.step()}).first;
    auto& [n, m] = of;
    expect(!std::exchange(m.is_sent, true), "is sent twice", n);
    m.out = &posted;
    m.sent_at = tallies_[from].time;
    m.is_eager = random_() % 2 == 0;
    tally& t = tallies_[from];
    ++t.messages;
    t.bytes += posted.memory.size_bytes();
    t.peer_list.push_back(posted.peer());
    if (m.is_eager) events_.push_back({nullptr, &of, change::send_ends});
    advance(of, posted.memory.size_bytes());
  }
  void post(unsigned to, incoming& posted) {
    if (has_failed_) return posted.end(true);
    named_message& of = *messages_.try_emplace({posted.peer(), to, posted.step()}).first;
    auto& [n, m] = of;
    expect(!std::exchange(m.is_expected, true), "is received twice", n);
    m.in = &posted;
    tallies_[to].peer_list.push_back(posted.peer());
    memory_.spoil(posted.memory);
    advance(of, posted.memory.size_bytes());
  }
  void withdraw(transfer& t) {
    for (auto& [n, m] : messages_) {
      if (m.in != &t && m.out != &t) continue;
      expect(is_given_up_, "was given up", n);
      if (m.in == &t) m.in = nullptr;
      if (m.out == &t) m.out = nullptr;
    }
  }

  Memory& memory_;
  const host_map* hosts_;
  scheduler scheduler_;
  std::minstd_rand random_;
  std::vector<tally> tallies_;
  std::vector<std::unique_ptr<rank_exchange>> exchanges_;
  std::unordered_map<name, message, hash> messages_;
  std::vector<event> events_;
  std::size_t events_left_ = std::size_t(-1);
  std::size_t events_max_ = std::size_t(-1);
  bool is_given_up_ = false;
  bool has_failed_ = false;
  std::optional<unsigned> last_;
  unsigned ended_early_ = 0;
  std::uint64_t allocations_ = 0;
  std::uint64_t own_allocations_ = 0;
  std::optional<std::string> mistake_;
};

/// An exchange of the model, on one rank.
template <class Memory>
class model_group<Memory>::rank_exchange final : public exchange {
 public:
  rank_exchange(model_group& group, unsigned rank, unsigned size)
      : exchange{rank, size}, group_{group} {}
  [[nodiscard]] const host_map* hosts() const noexcept override { return group_.hosts_; }
  [[nodiscard]] result<void> why() const noexcept override {
    if (!group_.has_failed_) return {};
    return failure{.code = errc::disconnected, .call = "model"};
  }
  void post(incoming& message) noexcept override {
    group_.own([&] { group_.post(rank(), message); });
  }
  void post(outgoing& message) noexcept override {
    group_.own([&] { group_.post(rank(), message); });
  }
  void withdraw(transfer& message) noexcept override { group_.withdraw(message); }
  local_mr_slice scratch(std::size_t size_bytes) override {
    return group_.own([&] { return group_.memory_.allocate(size_bytes); });
  }
  void copy(const local_mr_slice& into, const const_local_mr_slice& from) override {
    if (into.size_bytes() != from.size_bytes()) throw mistake{"a copy of two lengths"};
    group_.tallies_[rank()].copied += into.size_bytes();
    if (into.bytes().data() == from.bytes().data()) return;
    group_.own([&] { group_.memory_.copy(into, from); });
  }
  void combine(const local_mr_slice& into, const const_local_mr_slice& left,
               const const_local_mr_slice& right) override {
    if (into.size_bytes() != left.size_bytes() || left.size_bytes() != right.size_bytes())
      throw mistake{"a sum of two lengths"};
    group_.own([&] { group_.memory_.combine(into, left, right); });
  }

 private:
  model_group& group_;
};

}  // namespace model
