#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace bench {

/// Work that the driver (tools/dev/collectives.py) orders of each rank at once.
struct order {
  std::string operation;
  /// Bytes of the longer buffer of each rank: all_gather's result, reduce_scatter's input.
  std::size_t bytes = 0;
  std::uint64_t count = 0;  ///< Times, one after another.
};

/// The numbers that the launcher gave this process.
struct rank_of {
  unsigned rank = 0;
  unsigned size = 1;
};

/// Reads RANK and WORLD_SIZE, or Open MPI's names of them, and pins this process to a processor:
/// rank r to r modulo their number. Threads that are made later are pinned there, too.
rank_of begin_rank();

/// Returns true if no two ranks share a processor.
bool has_processor_each(const rank_of& mine);

/// The socket by which the driver orders work; COLLECTIVES_ORDERS names it. A rank waits for an
/// order asleep, so others are measured meanwhile.
class order_socket {
 public:
  explicit order_socket(unsigned rank);
  ~order_socket();
  order_socket(const order_socket&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// Waits for the next order; none: the driver has gone.
  std::optional<order> next();
  /// Tells the seconds that all the work of an order took. Unset: there is no such operation here.
  void answer(std::optional<double> seconds);

 private:
  int fd_;
};

/// One operation with its buffers in place, to be called again and again.
using collective = std::function<void()>;

/// Serves orders until the driver goes. `prepare` returns an empty function where the library has
/// no such operation.
void serve_orders(unsigned rank, const std::function<collective(const order&)>& prepare,
                  const collective& barrier);

/// Bytes of the longest buffer.
constexpr std::size_t collective_bytes_max = std::size_t{64} << 20;

}  // namespace bench
