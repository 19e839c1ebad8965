// Debian's mckey, in a process of its own, is a member of the same group: a program that joins by
// rdma_cm.

#include "cm/rig.hpp"
#include "sockets.hpp"
#include "support/commands.hpp"
#include "support/preload.hpp"

#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

using namespace cordma;
using namespace cordma::test;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

/// A socket of the device's address, with rdma_cm's Q_Key.
struct mckey_peer {
  [[nodiscard]] verbs::gid_entry row() {
    return verbs::choose_gid(rt.context().gid_table(port.number),
                             {.local_ip = verbs::gid_of(*address.data())});
  }
  /// Runs mckey in the group, until it has done its part.
  outcome run_mckey(const std::string& options) const {
    std::string host = address.to_string();
    host.erase(host.rfind(':'));
    return run("LD_PRELOAD='" + preload() + "' timeout 60 mckey -C 3 -S 100 -m " + group + " -b " +
               host + ' ' + options);
  }

  runtime rt{on_test_device()};
  const verbs::port_info port = rt.context().active_port();
  const socket_address address = cm::test::device_address(rt.context(), port.number);
  datagram_socket socket =
      rt.open_datagram({.gid_index = row().index, .qkey = datagram_address::rdma_cm_qkey});
  const std::string group =
      "239.118." + std::to_string(::getpid() >> 8 & 0xff) + '.' + std::to_string(::getpid() & 0xff);
  local_mr memory = rt.memory().allocate_zeroed(socket.payload_max());
};

}  // namespace

TEST_CASE("mckey gets what a socket sends to its group", "[datagram][device][rdma_cm]") {
  mckey_peer m;
  bool has_ended = false;
  outcome mckey;
  std::thread receiver{[&] {
    mckey = m.run_mckey("");
    m.rt.executor().post([&has_ended]() noexcept { has_ended = true; });
  }};
  const auto send = [&]() -> task<> {
    const multicast_membership group = co_await m.socket.join(m.group, {.send_only = true});
    while (!has_ended) {  // mckey does not say when it has joined.
      co_await m.socket.send_to(group.address(), m.memory.slice(0, 100));
      co_await m.rt.executor().sleep_for(1ms);
    }
  };
  m.rt.run(send());
  receiver.join();
  INFO(mckey.output);
  CHECK(mckey.exit_status == 0);
  CHECK_THAT(mckey.output, Contains("data transfers complete"));
}

TEST_CASE("a socket gets what mckey sends to its group", "[datagram][device][rdma_cm]") {
  mckey_peer m;
  const multicast_membership group = m.rt.run(m.socket.join(m.group));
  m.socket.post_recv(m.memory.slice());
  outcome mckey;
  std::thread sender{[&] { mckey = m.run_mckey("-s"); }};
  const datagram got = m.rt.run(with_timeout(m.socket.next_datagram(), 60s));
  sender.join();
  INFO(mckey.output);
  CHECK(mckey.exit_status == 0);
  CHECK(got.size_bytes == 100);
  CHECK(got.was_multicast);
  CHECK(got.sender.qpn != m.socket.address().qpn);
}
