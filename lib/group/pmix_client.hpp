#pragma once

#include "side_threads.hpp"

#include <cordma/detail/base/callback.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

namespace cordma::detail {

struct pmix_library;

/// This process as one of a job of PMIx. Other processes of the job are peers. There is one object,
/// until the process exits: PMIx cannot begin again after its end. A process that exits without
/// that end is taken for one that has died. \thread any.
class pmix_client {
 public:
  struct position {
    unsigned rank = 0;
    unsigned size = 1;
    unsigned local_size = 1;  ///< Processes of the job on this host.
  };
  using bytes = std::vector<std::byte>;

  /// Returns true if the library can be loaded.
  static bool is_available() noexcept;
  /// \errors errc::not_supported: the library cannot be loaded; the reason is the loader's.
  static pmix_client& instance();
  /// Uses other functions; for tests.
  explicit pmix_client(const pmix_library& functions);
  pmix_client(const pmix_client&) = delete;
  ~pmix_client();

  // The next two functions block, until `stop` at the latest: they then throw errc::timed_out.

  /// Connects to the launcher's server on this host, at the first call.
  /// \errors errc::not_supported: nothing that speaks PMIx started this process. errc::bad_message:
  ///   numbers of ranks that cannot be.
  position begin(const std::stop_token& stop);
  /// Gives the bytes of each rank, once all have called this as often as this one.
  /// \errors errc::disconnected: a rank has left the job. errc::bad_message: what a rank has put is
  ///   none, or longer than `bytes_max`. errc::refused: an earlier exchange of this process was
  ///   stopped.
  std::vector<bytes> exchange(const std::stop_token& stop, std::span<const std::byte> own,
                              std::size_t bytes_max);

  /// Calls `on_lost` on the executor for each rank that the launcher tells has died, before or
  /// after this call; until the result is dropped. \thread the executor's.
  std::shared_ptr<void> watch(cordma::executor& executor, callback<void(unsigned rank)> on_lost);

  /// Threads for the functions that block.
  [[nodiscard]] side_threads& threads() noexcept { return *threads_; }

 private:
  class session;

  const std::unique_ptr<session> session_;
  std::unique_ptr<side_threads> threads_;
};

}  // namespace cordma::detail
