#pragma once

#include <cordma/base/time.hpp>
#include <cordma/connection/endpoint.hpp>
#include <cordma/coro/task.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cordma {
class runtime;
struct group_options;
}  // namespace cordma

namespace cordma::detail {

/// One rank, as the others have to know it.
struct group_member {
  std::string endpoint{};  ///< Where it listens for the others, as `endpoint` reads it.
  std::uint64_t host = 0;  ///< Equal on one host: a number made from its boot.
};

/// The result of a meeting, on each rank.
struct roster {
  unsigned rank = 0;
  std::vector<group_member> members{};  ///< One for each rank.
  std::array<std::byte, 16> name{};     ///< Equal on all ranks, and different in each group.
};

/// A way in which the ranks of a group find each other. Copies of one object meet once.
class meeting_kind {
 public:
  meeting_kind() = default;
  meeting_kind(const meeting_kind&) = delete;
  virtual ~meeting_kind() = default;

  /// Returns where this rank is to listen: port 0 leaves the port to the system.
  /// \errors what is wrong with the variables, the file or the list; names it and its value.
  [[nodiscard]] virtual endpoint where_to_listen(runtime& rt) = 0;
  /// Tells the others of this rank, and learns of them. Ends when all ranks were told.
  /// \errors errc::timed_out: names ranks that did not come.
  [[nodiscard]] virtual task<roster> meet(runtime& rt, const group_options& options,
                                          group_member self) = 0;
};

}  // namespace cordma::detail
