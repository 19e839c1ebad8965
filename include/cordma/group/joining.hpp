#pragma once

#include <cordma/base/time.hpp>
#include <cordma/connection/connection_options.hpp>
#include <cordma/connection/endpoint.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/base/fixed_text.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace cordma {

namespace detail {
class meeting_kind;
}

/// How the ranks of a group find each other (docs/collectives.md). A meeting serves one
/// `group::join`.
class CORDMA_EXPORT meeting {
 public:
  /// The launcher's: PMIx (mpirun, srun --mpi=pmix) where its variables are set, else torchrun's
  /// variables. torchrun's go first where a launcher started torchrun. Without either it is a group
  /// of one, and a line on stderr says so. \errors as the two.
  static meeting by_launcher();
  /// PMIx, whose library is loaded now. All ranks make their groups in the same order.
  /// \errors errc::not_supported: cordma was built without PMIx, or the library cannot be loaded.
  static meeting by_pmix();
  /// torchrun's variables: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Ranks meet at the next port
  /// if the agent's store has that one; CORDMA_MEETING=host:port names another address.
  /// \errors EINVAL: a variable that is missing or wrong; names its text.
  static meeting by_environment();
  /// Rank 0 listens at `address`, where the others tell it their addresses.
  /// \errors errc::out_of_range: `rank` is not below `size`.
  static meeting at(endpoint address, unsigned rank, unsigned size);
  /// Each rank listens at its own endpoint of the list, which all ranks have.
  /// \errors errc::out_of_range: no such rank.
  static meeting by_list(std::vector<endpoint> members, unsigned rank);
  /// Reads the list from a file that has an endpoint a line; `#` begins a comment.
  /// \errors an errno of opening the file; EINVAL: names the line and its text.
  static meeting by_file(std::string_view path, unsigned rank);
  /// Makes a group of one rank.
  static meeting single();
  /// Ranks in one process, each with a runtime of its own, on any threads: a meeting for each rank.
  static std::vector<meeting> in_process(unsigned size);

  explicit meeting(std::shared_ptr<detail::meeting_kind> kind) noexcept;
  /// Returns the way itself, for the library's own rooms.
  [[nodiscard]] detail::meeting_kind& kind() const noexcept { return *kind_; }

 private:
  std::shared_ptr<detail::meeting_kind> kind_;
};

/// Options of a group on one rank. Ranks may differ, unless it says otherwise. No member owns
/// memory, because g++ 12 destroys such aggregates twice when a `co_await` contains their braces.
struct group_options {
  /// Options of the connections between ranks: credentials, the fabric's. `receives_from`,
  /// `private_data`, `preposted` and `plain` are the group's own.
  connection_changes connections{};
  /// Where this rank listens for the others, as `endpoint` reads it. Empty: the meeting says so,
  /// which is a free port of loopback if all ranks are on this host.
  fixed_text<120> listen{};
  /// Connects to all ranks in `join`, within `join_timeout`; else to each when a message goes
  /// there.
  bool connect_at_once = false;
  /// Receive buffers of all connections together. Each connection is sure of 8 of them, and needs
  /// 16 for a moment if both ranks connect at once. 0: 16 for each rank, from 256 to 16384.
  std::uint32_t receive_buffers = 0;
  /// Bytes of the longest message that is sent at once, and copied from a receive buffer. A longer
  /// one is written to its place when the receiver is ready. All ranks have the same.
  std::size_t buffer_bytes = 8192;
  /// How long `join` waits for the others.
  time_span join_timeout = std::chrono::seconds{60};
  /// An operation that waits for a rank ends if the rank's executor gives no sign of life for so
  /// long. A rank that dies is noticed earlier, mostly at once. A rank that has no connection yet
  /// may take as long as `connections.connect_timeout`. At least 10 ms.
  time_span silence_max = std::chrono::seconds{60};
  /// Changes of the table of algorithms (docs/collectives.md). After these count those of the
  /// variable CORDMA_COLLECTIVES, then the table as it is. All ranks must have the same.
  fixed_text<480> algorithms{};
  /// Makes the result of each reduction depend on the number of ranks alone: not on lengths, hosts
  /// or algorithms. All ranks must have the same.
  bool reproducible = false;
  /// Names this host, for ranks that share one. Unset: the host's boot.
  std::optional<std::uint64_t> host{};
};

}  // namespace cordma
