#pragma once

#include <cordma/connection/endpoint.hpp>
#include <cordma/detail/base/export.hpp>

#include <memory>
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

}  // namespace cordma
