#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace softverbs::test {

/// Another process with a node of its own: this program again, started with `--peer <job>`. The job
/// `echo` answers each request, and only its engine works. `poll` does so, too, by polling. `flood
/// <slot>` sends requests to that slot until it is killed, answers or not.
class peer_process {
 public:
  explicit peer_process(const std::string& job, const char* environment = nullptr);
  ~peer_process();  ///< kills it, if it lives
  peer_process(const peer_process&) = delete;
  peer_process& operator=(const peer_process&) = delete;

  [[nodiscard]] std::uint32_t qpn() const { return qpn_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  void signal(int number) const;
  void kill();  ///< -9, and waits for its end

 private:
  pid_t pid_ = -1;
  int to_ = -1;
  std::uint32_t qpn_ = 0;
};

/// main() of the other process.
int be_peer(int argc, char** argv);

}  // namespace softverbs::test
