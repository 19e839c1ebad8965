#include "../perf/text.hpp"
#include "attempt_memory.hpp"
#include "tries.hpp"

#include <cordma/datagram/datagram_socket.hpp>

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace doctor {
namespace {

using cordma::datagram;
using cordma::datagram_address;
using cordma::datagram_options;
using cordma::local_mr_slice;
using cordma::runtime;
using cordma::task;
using clock = std::chrono::steady_clock;

/// A socket with a receive, and with the bytes that it sends.
struct datagram_side {
  datagram_side(runtime& rt, const datagram_options& options, unsigned seed)
      : socket{rt.open_datagram(options)},
        memory{rt.memory().allocate_zeroed(2 * socket.payload_max())} {
    socket.post_recv(memory.first(socket.payload_max()));
    fill(out().bytes(), seed);
  }
  /// A datagram has at most an MTU.
  local_mr_slice out() {
    const std::size_t longest = socket.payload_max();
    return memory.slice(longest, std::min(longest, message_bytes));
  }

  cordma::datagram_socket socket;
  cordma::local_mr memory;
};

void check_datagram(const datagram& got, datagram_side& from, unsigned seed) {
  check_equal(got.size_bytes, from.out().size_bytes(), "the length of a datagram");
  check_filled(got.payload().bytes(), seed, "a datagram");
}

/// A datagram there, and one back to its sender.
task<std::string> exchange_datagrams(runtime& rt, datagram_options options) {
  datagram_side asks{rt, options, message_seed};
  options.qkey = asks.socket.address().qkey;  // An answer needs the same.
  datagram_side answers{rt, options, area_seed};
  co_await asks.socket.find_route(answers.socket.address());
  co_await answers.socket.find_route(asks.socket.address());
  const clock::time_point start = clock::now();
  co_await asks.socket.send_to(answers.socket.address(), asks.out());
  const datagram question = co_await answers.socket.next_datagram();
  check_datagram(question, asks, message_seed);
  co_await answers.socket.send_to(question.sender, answers.out());
  const datagram answer = co_await asks.socket.next_datagram();
  check_datagram(answer, answers, area_seed);
  co_return took(start);
}

/// A random group of the GID's version of IP, and of this site or link.
std::string some_group(const ibv_gid& gid) {
  const unsigned random = std::random_device{}() & 0xffff;
  in6_addr address;
  std::memcpy(&address, gid.raw, sizeof address);
  std::string text;
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    perf::append(text, "239.255.%u.%u", random >> 8, random & 0xff);
  } else {
    perf::append(text, "ff12::%x", random);
  }
  return text;
}

/// A datagram from a socket that only sends to the group, to a member.
task<std::string> tell_group(runtime& rt, datagram_options options) {
  options.qkey = datagram_address::rdma_cm_qkey;  // A subnet manager gives groups this one.
  datagram_side teller{rt, options, message_seed};
  datagram_side listener{rt, options, area_seed};
  const std::string group = some_group(listener.socket.address().path.gid);
  const auto member = co_await listener.socket.join(group);
  const auto sender = co_await teller.socket.join(group, {.send_only = true});
  co_await teller.socket.find_route(sender.address());
  const clock::time_point start = clock::now();
  co_await teller.socket.send_to(sender.address(), teller.out());
  const datagram got = co_await listener.socket.next_datagram();
  check_datagram(got, teller, message_seed);
  if (!got.was_multicast)
    throw std::runtime_error{"the device says that a datagram to a group was sent to one socket"};
  co_return "by group " + group + ", " + took(start);
}

}  // namespace

void try_datagrams(runtime& rt, const subject& s, report& r) {
  const cordma::runtime_options used = options_for(s);
  const std::string netdev = s.netdev();
  const datagram_options options{.port = used.port, .gid_index = used.gid_index};
  add_outcome(r, "try.datagram",
              outcome_in_time(rt, exchange_datagrams(rt, options), attempt_time_max),
              "a loopback over UD, which datagram sockets use: no network is involved",
              {severity::error, "see gid, mtu, memlock and cgroup; sudo dmesg may tell more"});
  add_outcome(r, "try.multicast", outcome_in_time(rt, tell_group(rt, options), attempt_time_max),
              "a loopback by a multicast group, which only datagram sockets that join one need",
              {severity::warning,
               "see try.datagram; sudo ip link set dev " + (netdev.empty() ? "INTERFACE" : netdev) +
                   " multicast on; on InfiniBand a subnet manager: sudo opensm -B"});
}

}  // namespace doctor
