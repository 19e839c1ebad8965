#pragma once

#include "orders.hpp"

#include <cordma/verbs/memory_region.hpp>
#include <support/raw_verbs.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

/// How a rank waits for completions. With fewer processors than ranks, who polls without a yield
/// keeps those from working for whom the rank waits.
enum class waiting : unsigned char { busy, yielding, event, adaptive };
waiting waiting_by(std::string_view name);

/// Queue pairs of raw verbs from a rank to all others, on one completion queue, and a buffer. All
/// data move by WRITE_WITH_IMM from one rank's buffer to the same place of another's.
class raw_links {
 public:
  /// Meets the other ranks in a file that all of them map.
  raw_links(const rank_of& mine, const std::string& file, waiting how);

  /// Writes a message of at most `message_bytes_max` to the peer, which tells the messages of ranks
  /// apart.
  void send(unsigned peer, std::size_t bytes);
  /// Waits for one more message from the peer.
  void await(unsigned peer);
  /// Moves `to_send` bytes to the rank before and, at once, `to_receive` from the next one, round a
  /// buffer of so many bytes. Each rank begins with its own part of it.
  void shift(std::size_t buffer_bytes, std::size_t part_bytes, std::size_t to_send,
             std::size_t to_receive);

  [[nodiscard]] unsigned rank() const noexcept { return mine_.rank; }
  [[nodiscard]] unsigned size() const noexcept { return mine_.size; }

  static constexpr std::size_t message_bytes_max = std::size_t{64} << 10;

 private:
  struct link {
    cordma::verbs::queue_pair qp;
    support::raw::remote buffer;
    unsigned arrived = 0;  ///< Messages that nobody has awaited.
    unsigned unsignaled = 0;
  };
  struct meeting_file;

  void meet(meeting_file& all);
  void post_receive(unsigned peer);
  void write(link& to, std::size_t at, std::size_t bytes, std::uint64_t id, bool is_signaled);
  void reap();
  std::size_t poll();
  void block();

  const rank_of mine_;
  const waiting how_;
  cordma::verbs::context ctx_;
  cordma::verbs::port_info port_;
  cordma::verbs::protection_domain pd_;
  std::vector<std::byte> buffer_;
  cordma::verbs::memory_region region_;
  std::unique_ptr<cordma::verbs::completion_channel> channel_;
  cordma::verbs::completion_queue cq_;
  std::vector<link> links_;  ///< Index: the rank. This rank's own is never connected.
  bool is_segment_in_flight_ = false;
};

}  // namespace bench
