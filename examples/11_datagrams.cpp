// Sockets of datagrams find each other. One asks a multicast group who is there. Each member
// answers the asker alone, and is then sent a datagram of its own. All are in this one process, on
// one executor; processes and hosts of their own do the same. Usage: 11_datagrams [DEVICE]

#include <cordma/cordma.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace std::chrono_literals;

constexpr std::array<std::string_view, 3> names{"anna", "bert", "carla"};

std::string text_of(const cordma::datagram& d) {
  const auto bytes = d.payload().bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A socket with the buffers that it receives into. Each has room for the longest datagram.
struct party {
  party(cordma::runtime& rt, std::uint32_t qkey, std::size_t buffers = 4)
      : socket{rt.open_datagram({.qkey = qkey})},
        memory{rt.memory().allocate_zeroed((buffers + 1) * socket.payload_max())} {
    const std::size_t each = socket.payload_max();
    for (std::size_t i = 1; i <= buffers; ++i) socket.post_recv(memory.slice(i * each, each));
  }
  /// Copies text to where datagrams are sent from.
  cordma::local_mr_slice put(std::string_view text) {
    std::memcpy(memory.bytes().data(), text.data(), text.size());
    return memory.slice(0, text.size());
  }

  cordma::datagram_socket socket;
  cordma::local_mr memory;
};

/// The group is an address of IP of the socket's own version.
std::string group_for(const cordma::datagram_socket& socket) {
  const std::string own = socket.address().to_string();
  return own.find("gid=::ffff:") != std::string::npos ? "239.17.4.11" : "ff15::1704:11";
}

cordma::task<> be_member(party& me, std::string_view name, cordma::event& is_member) {
  const cordma::multicast_membership member = co_await me.socket.join(group_for(me.socket));
  is_member.set();
  const cordma::datagram question = co_await me.socket.next_datagram();
  if (!question.was_multicast) throw std::runtime_error{"the question went to the group"};
  // A datagram tells its sender's address, to which the answer goes.
  co_await me.socket.send_to(question.sender, me.put(name));
  const cordma::datagram greeting = co_await me.socket.next_datagram();
  std::printf("%s got '%s'\n", std::string{name}.c_str(), text_of(greeting).c_str());
}

cordma::task<> ask(party& me, std::array<cordma::event, names.size()>& members) {
  for (cordma::event& one : members) co_await one.wait();
  const cordma::multicast_membership group =
      co_await me.socket.join(group_for(me.socket), {.send_only = true});
  co_await me.socket.send_to(group.address(), me.put("who is there?"));
  for (std::size_t n = 0; n < names.size(); ++n) {
    // Lost datagrams are not repeated, so a program has its own deadline.
    const cordma::datagram answer = co_await cordma::with_timeout(me.socket.next_datagram(), 10s);
    const std::string name = text_of(answer);
    std::printf("%s is at %s\n", name.c_str(), answer.sender.to_string().c_str());
    co_await me.socket.send_to(answer.sender, me.put("nice to meet you, " + name));
  }
}

cordma::task<> meet(cordma::runtime& rt) {
  // All members have one Q_Key, because a device drops datagrams with another. Processes would
  // agree on a number; here a random one keeps other runs of this example apart.
  const std::uint32_t qkey = std::random_device{}() >> 1;
  party asker{rt, qkey}, anna{rt, qkey}, bert{rt, qkey}, carla{rt, qkey};
  std::array<cordma::event, names.size()> members;
  co_await cordma::when_all(be_member(anna, names[0], members[0]),
                            be_member(bert, names[1], members[1]),
                            be_member(carla, names[2], members[2]), ask(asker, members));
}

}  // namespace

int main(int argc, char** argv) try {
  cordma::runtime rt{{.device = argc > 1 ? argv[1] : ""}};
  rt.run(meet(rt));
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
