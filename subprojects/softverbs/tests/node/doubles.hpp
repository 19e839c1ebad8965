#pragma once

#include "link/link.hpp"
#include "node/node.hpp"
#include "wire/frame.hpp"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace softverbs::test {

/// A record of the calls that the doubles of node/upcalls.hpp saw. A test waits for the record, and
/// sets how requests are answered.
struct seen {
  struct frame {
    frame_header header;
    std::vector<std::byte> payload;
    node_address from;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::uint32_t, unsigned> runs;  ///< keyed by QP number
  std::thread::id ran_by;
  std::vector<frame> requests;
  std::vector<frame> answers;
  std::vector<std::uint32_t> downs;  ///< QP numbers that heard on_link_down
  std::function<void(std::uint32_t)> on_run;
  bool echo = false;  ///< answer each request with an ack of its psn
  bool keep_payloads = true;
  bool answers_are_lies = false;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> owed;  ///< QP number, psn of acks to send

  void reset();
  /// Waits until `what` holds; false when it does not within a generous time.
  bool wait(const std::function<bool()>& what);
  auto locked(const auto& what) {
    const std::lock_guard lock{mutex};
    return what();
  }
};
seen& upcalls();

/// A user of the process's node, with an empty record.
struct node_user {
  node_user() { upcalls().reset(); }
  ~node_user() { node::release(local_node); }
  node& local_node = node::acquire();
};

}  // namespace softverbs::test
