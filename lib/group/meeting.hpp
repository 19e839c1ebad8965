#pragma once

#include <cordma/base/time.hpp>
#include <cordma/connection/endpoint.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/detail/base/callback.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cordma {
class runtime;
struct group_options;
}  // namespace cordma

namespace cordma::detail {

/// One rank, as the others have to know it. Has constructors, because g++ 12 destroys an aggregate
/// with owning members twice when a `co_await` contains it.
struct group_member {
  group_member() noexcept = default;
  group_member(std::string of_endpoint, std::uint64_t on_host) noexcept
      : endpoint{std::move(of_endpoint)}, host{on_host} {}

  std::string endpoint{};  ///< Where it listens for the others, as `endpoint` reads it.
  std::uint64_t host = 0;  ///< Equal on one host: `host_number`.
};

/// Equal on all ranks of a group, and different in each group.
using group_name = std::array<std::byte, 16>;

/// The result of a meeting, on each rank.
struct roster {
  unsigned rank = 0;
  std::vector<group_member> members{};  ///< One for each rank.
  group_name name{};
  bool may_come_late = false;  ///< True if ranks may not listen yet.
};

/// A way in which the ranks of a group find each other. One object serves one `meet`.
class meeting_kind {
 public:
  meeting_kind() = default;
  meeting_kind(const meeting_kind&) = delete;
  virtual ~meeting_kind() = default;

  /// Returns the number of ranks, once `where_to_listen` has ended.
  [[nodiscard]] virtual unsigned size() const noexcept = 0;
  /// Returns where this rank is to listen: port 0 leaves the port to the system.
  /// \errors what is wrong with the launcher; names it.
  [[nodiscard]] virtual task<endpoint> where_to_listen(runtime& rt) = 0;
  /// Tells the others of this rank, and learns of them. Ends when all ranks were told.
  /// \errors errc::timed_out: names ranks that did not come. EINVAL: no other rank could reach
  ///   `self`.
  [[nodiscard]] virtual task<roster> meet(runtime& rt, const group_options& options,
                                          group_member self) = 0;
  /// Calls `on_lost`, on the executor of `rt`, when the launcher tells that a rank has died; until
  /// the result is dropped. Null: nobody tells. Call it after `meet`, on the executor's thread.
  [[nodiscard]] virtual std::shared_ptr<void> watch(runtime& /*rt*/,
                                                    callback<void(unsigned rank)>&& /*on_lost*/) {
    return nullptr;
  }
};

}  // namespace cordma::detail
