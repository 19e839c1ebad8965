#pragma once

#include "rig.hpp"

#include <array>
#include <cstdint>
#include <random>
#include <vector>

/// Two processes keep each other busy by random operations at depth on a few queue pairs.
namespace busy {

inline constexpr int qp_count = 2;

/// Retries end soon: a round takes milliseconds.
inline constexpr rig::qp_options options{
    .sends = 32, .receives = 32, .timeout = 8, .retries = 2, .rnr_retries = 7};

using cards = std::array<rig::card, qp_count>;

/// The outcomes of a side's work requests.
struct tally {
  std::uint64_t succeeded = 0;
  std::uint64_t retries_exceeded = 0;
  std::uint64_t flushed = 0;
};

/// Posts random requests and checks how they complete. \thread one.
/// \errors A completion comes out of order, or has a status other than success, RETRY_EXC and
///   WR_FLUSH. A message's bytes are not as they were sent.
class side {
 public:
  side(const rig::device& dev, std::uint64_t seed);

  [[nodiscard]] cards mine() const;
  void connect(const cards& peers);
  /// Posts a random request where there is room, if `requests`, and reaps what is there.
  void pump(bool requests);
  [[nodiscard]] bool all_failed() const;  ///< each QP had an error completion
  /// The rest must come out, as flushes, when the QPs go to the error state.
  void drain();
  [[nodiscard]] const tally& results() const noexcept { return tally_; }

 private:
  struct queue {
    rig::qp_ptr qp;
    rig::card peer;
    std::uint64_t posted = 0;     // Sends; their wr_id is their number.
    std::uint64_t completed = 0;  // End of the requests that are known to be done.
    std::uint64_t signaled = 0;   // End of the requests up to the last signaled one.
    std::uint32_t receives = 0;   // Posted and not reaped.
    bool failed = false;
  };

  void post_random(int number);
  void post_receive(int number, std::uint64_t buffer);
  bool reap();
  void reap_send(queue& q, const ibv_wc& wc);
  void reap_receive(int number, const ibv_wc& wc);

  const rig::device& device_;
  std::mt19937_64 random_;
  std::vector<std::uint64_t> memory_;
  rig::mr_ptr mr_;
  rig::cq_ptr cq_;
  std::array<queue, qp_count> queues_;
  tally tally_;
};

}  // namespace busy
