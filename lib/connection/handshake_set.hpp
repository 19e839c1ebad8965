#pragma once

#include "io/byte_channel.hpp"

#include <cordma/connection/connection.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/coro/scheduler.hpp>
#include <cordma/coro/semaphore.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/io/socket_address.hpp>

#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

namespace cordma::detail {

/// A client's address without the port. An IPv4 address and its IPv6-mapped form are one host.
/// Clients of any other family are one host, and so are those whose address is unknown.
struct client_host {
  sa_family_t family = AF_UNSPEC;
  std::array<std::uint8_t, 16> address{};
  auto operator<=>(const client_host&) const = default;
};
client_host host_of(const socket_address& address) noexcept;

/// Returns what a handshake ends with that was dropped because of an option's limit.
failure dropped_at(const char* limit, unsigned value) noexcept;

/// Handshakes that hold a place, and which of them gives its place to a newcomer:
///
/// | state | what moves it | next state |
/// | --- | --- | --- |
/// | in progress: counts for its host | the handshake succeeds | left |
/// | | the handshake fails | failed |
/// | | `drop_one` chooses it | left; it ends with the reason of the drop |
/// | failed: the client reads why | `drop_one` chooses it | left; it ends at once |
///
/// The members outlive what they run; the set outlives its members. \thread one.
class handshake_set {
 public:
  class member;
  struct leaver {
    void operator()(semaphore* permits) const noexcept { permits->release(); }
  };
  /// A place in the set, until it is destroyed.
  using permit = std::unique_ptr<semaphore, leaver>;

  /// A handshake keeps its place for a `grace_part` of its timeout: clients that come in a burst
  /// wait for each other.
  static constexpr int grace_part = 10;

  handshake_set(cordma::scheduler& clock, unsigned handshakes_max, time_span timeout) noexcept
      : clock_{clock},
        handshakes_max_{handshakes_max},
        timeout_{timeout},
        grace_{duration{timeout} / grace_part},
        permits_{handshakes_max} {}
  handshake_set(const handshake_set&) = delete;
  handshake_set& operator=(const handshake_set&) = delete;

  /// Gives a place; when all are taken, that of the member that `drop_one` chooses. Waits while
  /// nobody can be dropped. \errors `cancelled`, std::bad_alloc.
  task<permit> enter(client_host newcomer);
  /// Drops the member that has failed first. If none has, chooses the oldest in progress of the
  /// host with most, where `newcomer` counts as one more. Of hosts with as many, the one with the
  /// oldest member loses. Drops the chosen one if it is as old as `grace()`. Returns how long it
  /// takes until it is; for ever if one was dropped, or nobody can be. `why` is what the dropped
  /// handshake ends with. \cost O(hosts).
  duration drop_one(const client_host& newcomer, const failure& why) noexcept;
  /// Calls `drop_one`, for newcomers of new hosts, until the next one is too young.
  void drop_all(const failure& why) noexcept;
  [[nodiscard]] duration grace() const noexcept { return grace_; }

 private:
  /// The oldest comes first.
  struct crowd {
    intrusive_list<member> members;
    std::size_t count = 0;
  };

  cordma::scheduler& clock_;
  const unsigned handshakes_max_;
  const time_span timeout_;
  const duration grace_;
  semaphore permits_;
  std::map<client_host, crowd> hosts_;  // Crowds that are empty are erased.
  crowd failed_;
  std::uint64_t begun_ = 0;
};

/// One handshake's membership.
class handshake_set::member : public list_hook<member> {
 public:
  /// \errors std::bad_alloc.
  member(handshake_set& set, permit own, const client_host& host);
  member(const member&) = delete;
  member& operator=(const member&) = delete;
  ~member() { leave(); }

  /// Runs the handshake within its timeout, until it is dropped. \errors its own; errc::timed_out;
  /// the reason of the drop. The caller then tells the client by `refuse`.
  task<connection> run(task<connection> handshake);
  /// Runs what tells the client why, and waits for nothing if the member was dropped, or is now.
  task<> refuse(task<> refusal);
  /// Returns true if `run` ended because the handshake was dropped.
  [[nodiscard]] bool was_dropped() const noexcept { return why_dropped_.has_value(); }

 private:
  friend class handshake_set;
  task<connection> settle(task<connection> handshake);
  void join(crowd& of) noexcept;
  void leave() noexcept;

  handshake_set& set_;
  const permit permit_;
  const client_host host_;
  const std::uint64_t number_;
  const time_point begun_;
  crowd* crowd_ = nullptr;
  event dropped_;
  std::optional<failure> why_dropped_;
};

}  // namespace cordma::detail
