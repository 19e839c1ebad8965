#include "link/peer.hpp"

#include "node/doubles.hpp"
#include "node/node.hpp"
#include "queue/completion_queue.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace softverbs::test {

peer_process::peer_process(const std::string& job, const char* environment) {
  int in[2];
  int out[2];
  REQUIRE(::pipe2(in, O_CLOEXEC) == 0);
  REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
  const auto space = job.find(' ');
  const std::string verb = job.substr(0, space);
  const std::string object = space == std::string::npos ? "" : job.substr(space + 1);
  pid_ = ::fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(out[1], STDOUT_FILENO);
    if (environment != nullptr) ::putenv(::strdup(environment));
    ::execl("/proc/self/exe", "peer", "--peer", verb.c_str(), object.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  to_ = in[1];
  const ssize_t bytes = ::read(out[0], &qpn_, sizeof qpn_);
  ::close(out[0]);
  REQUIRE(bytes == sizeof qpn_);
}

peer_process::~peer_process() { kill(); }

void peer_process::signal(int number) const { ::kill(pid_, number); }

void peer_process::kill() {
  if (pid_ < 0) return;
  signal(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  ::close(to_);
  pid_ = -1;
}

namespace {

bool parent_lives() {
  pollfd in{STDIN_FILENO, POLLIN, 0};
  return ::poll(&in, 1, 0) == 0;
}

void flood(node& local_node, std::uint32_t qpn, std::uint16_t slot) {
  for (std::uint32_t psn = 0; parent_lives(); ++psn) {
    node_address to;
    to.slot = slot;
    link* route = local_node.link_to(to);
    if (route == nullptr) continue;
    frame_header header{};
    header.kind = frame_kind::write;
    header.psn = psn;
    header.source_qpn = qpn;
    header.payload_bytes = psn * 977 % segment_bytes_max;
    if (route->reserve(header, qpn).result == sent::yes) route->commit();
  }
}

}  // namespace

int be_peer(int argc, char** argv) {
  if (argc < 4) return 2;
  upcalls().echo = true;
  upcalls().keep_payloads = false;
  node& local_node = node::acquire();
  const std::uint32_t qpn = local_node.allocate_qpn();
  if (::write(STDOUT_FILENO, &qpn, sizeof qpn) != sizeof qpn) return 3;
  const std::string job = argv[2];
  if (job == "flood") {
    flood(local_node, qpn, static_cast<std::uint16_t>(std::atoi(argv[3])));
  } else if (job == "poll") {
    const auto cq = std::make_unique<completion_queue>();
    while (parent_lives())
      for (int n = 0; n < 1000; ++n) local_node.on_empty_poll(*cq);
  } else {
    char end = 0;
    while (::read(STDIN_FILENO, &end, 1) > 0) continue;
  }
  local_node.free_qpn(qpn);
  node::release(local_node);
  return 0;
}

}  // namespace softverbs::test
