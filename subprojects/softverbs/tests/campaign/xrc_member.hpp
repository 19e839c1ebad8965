#pragma once

#include "process.hpp"
#include "rig.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

/// Processes that share an XRC domain, and do what a test says.
namespace xrc {

enum class deed : std::uint32_t {
  make_target,     ///< answers its number
  make_initiator,  ///< answers its number
  connect,         ///< the queue pair `own` with `peer`
  listen,          ///< posts `count` receives
  send,            ///< posts a SEND of `own` to `queue`, and awaits the completion
  write,           ///< into the memory of `queue`'s process, likewise
  read,            ///< likewise
  hear,            ///< awaits a message of `bytes` by `seed`
  holds,           ///< tells whether a WRITE of `bytes` by `seed` came
  destroy_queue,
  destroy,  ///< the queue pair `own`
};

struct end {
  std::uint32_t number = 0;
  ibv_gid gid{};
};
struct queue {
  std::uint32_t number = 0;
  std::uint32_t rkey = 0;
  std::uint64_t address = 0;
};
struct order {
  deed what{};
  std::uint32_t own = 0;
  end peer{};
  queue to{};
  std::uint64_t bytes = 0;
  std::uint64_t seed = 0;
  std::uint32_t count = 0;
  std::uint8_t rnr_retries = 7;
};
struct answer {
  end made{};
  ibv_wc_status status{};
  bool well = false;
};

inline constexpr std::size_t buffer_bytes = std::size_t{3} << 20;  // More than a link's ring.

/// A process with one receive queue, as its test sees it.
class member {
 public:
  /// `domain`: the file of the domain. `host`, `address`: as of rig::enter_host() and rig::device.
  member(int domain, const std::string& host = "", const std::string& address = "127.0.0.1",
         const std::vector<std::string>& environment = {});
  answer obey(const order& o) {
    tell(o);
    return heard();
  }
  void tell(const order& o) { rig::put(control_.ours.get(), o); }
  answer heard() { return rig::get<answer>(control_.ours.get()); }
  [[nodiscard]] const queue& own_queue() const noexcept { return queue_; }
  void kill() noexcept { process_.kill(); }
  pid_t pid() const noexcept { return process_.pid(); }

  answer send(std::uint32_t initiator, const queue& to, std::uint64_t bytes, std::uint64_t seed) {
    return obey({.what = deed::send, .own = initiator, .to = to, .bytes = bytes, .seed = seed});
  }
  bool hears(std::uint64_t bytes, std::uint64_t seed) {
    return obey({.what = deed::hear, .bytes = bytes, .seed = seed}).well;
  }

 private:
  rig::socket_pair control_;
  rig::child process_;
  queue queue_;
};

/// Connects a new initiator of `from` with a new target of `to`. Returns the initiator's number.
std::uint32_t connect(member& from, member& to, std::uint8_t rnr_retries = 7);

}  // namespace xrc
