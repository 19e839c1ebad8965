#pragma once

#include "link/idle_engine.hpp"
#include "link/link.hpp"
#include "link/unique_fd.hpp"
#include "node/node.hpp"
#include "wire/ring.hpp"

#include <sys/socket.h>

#include <catch2/catch.hpp>

#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>

namespace softverbs::test {

/// A link and its far end, both played by this test: frames are served only when the test says so,
/// by no other thread.
class far_link {
 public:
  far_link(const node& local_node, std::uint16_t slot, bool opened_by_us) {
    // Never freed, as the node's are not: whoever owes an answer refers to its link.
    static std::deque<link> links;
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    socket_.reset(ends[0]);
    const int file = ring_memory::create_file();
    REQUIRE(file >= 0);
    REQUIRE(memory_.reserve());
    REQUIRE(memory_.map(file, !opened_by_us));
    to_us.attach(memory_.out());
    from_us.attach(memory_.in());
    link::setup how{
        {{}, slot}, unique_fd{ends[1]}, unique_fd{file}, opened_by_us, local_node.slot()};
    ours_ = &links.emplace_back(idle_engine());
    REQUIRE(ours_->start(how));
  }
  ~far_link() {
    step_mutex directory;
    index_set waiters;
    ours_->stop(directory, waiters);
  }
  far_link(const far_link&) = delete;

  [[nodiscard]] link& ours() noexcept { return *ours_; }
  /// Sends a frame whose payload is whatever the ring holds.
  void send(const frame_header& header) {
    std::byte* destination = nullptr;
    REQUIRE(to_us.reserve(frame_bytes(header.payload_bytes), destination) == ring_answer::yes);
    std::memcpy(destination, &header, sizeof header);
    to_us.publish(frame_bytes(header.payload_bytes));
  }

  ring_producer to_us;
  ring_consumer from_us;

 private:
  unique_fd socket_;
  ring_memory memory_;
  link* ours_ = nullptr;
};

}  // namespace softverbs::test
