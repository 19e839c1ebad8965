// cordma-perf between two hosts, which are network namespaces with a cable between them.

#include "support/commands.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "tools/folders.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <array>
#include <string>
#include <vector>

using namespace cordma::test;
using Catch::Matchers::Contains;

namespace {

constexpr std::array addresses{"10.98.0.1", "10.98.0.2"};

/// Two network namespaces, which are gone afterwards.
class two_hosts {
 public:
  two_hosts() {
    must("ip netns add " + names_[0] + " && ip netns add " + names_[1]);
    must("ip -n " + names_[0] + " link add veth0 type veth peer name veth0 netns " + names_[1]);
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const std::string ip = "ip -n " + names_[i];
      must(ip + " addr add " + addresses[i] + "/24 dev veth0 && " + ip + " link set veth0 up && " +
           ip + " link set lo up");
    }
  }
  two_hosts(const two_hosts&) = delete;
  two_hosts& operator=(const two_hosts&) = delete;
  ~two_hosts() { run("ip netns del " + names_[0] + "; ip netns del " + names_[1]); }

  /// The words of a command that runs on a host, with soft0 on its address.
  [[nodiscard]] std::vector<std::string> on(std::size_t host,
                                            const std::vector<std::string>& command) const {
    std::vector<std::string> all{"/usr/bin/env",
                                 "ip",
                                 "netns",
                                 "exec",
                                 names_[host],
                                 "env",
                                 std::string{"SOFTVERBS_LISTEN="} + addresses[host]};
    all.insert(all.end(), command.begin(), command.end());
    return all;
  }

 private:
  static void must(const std::string& command) {
    const outcome ran = run(command);
    INFO(command << ": " << ran.output);
    REQUIRE(ran.exit_status == 0);
  }

  const std::array<std::string, 2> names_{"perf-a-" + std::to_string(::getpid()),
                                          "perf-b-" + std::to_string(::getpid())};
};

}  // namespace

TEST_CASE("datagrams go to another host and back, by address and by multicast", "[tools][device]") {
  if (!is_soft()) CORDMA_SKIP("two hosts are two devices, and soft0 has one on each");
  if (::geteuid() != 0) CORDMA_SKIP("network namespaces are root's");
  const two_hosts hosts;
  background server{hosts.on(0, {CORDMA_PERF, "server", "--port", "0", "--device", device_name(),
                                 "--host", addresses[0]})};
  const std::string at = server.line_after("listening on ");
  for (const char* op : {"ud", "multicast"}) {
    const outcome ran =
        background{hosts.on(1, {CORDMA_PERF, "client", at, "--device", device_name(),
                                "--operations", "200", "--depth", "4", "--op", op})}
            .end();
    INFO(op << ": " << ran.output);
    CHECK(ran.exit_status == 0);
    CHECK_THAT(ran.output, Contains(op));
  }
}
