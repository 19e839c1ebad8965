#include "hosts.hpp"
#include "process.hpp"
#include "rig.hpp"
#include "soak.hpp"

#include <catch2/catch.hpp>

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

// Members are processes that obey a `driver`, which sends to their groups.

namespace multicast {
namespace {

constexpr std::uint32_t everybody = 0xffffff;
constexpr std::size_t grh_bytes = 40;
constexpr std::size_t buffer_bytes = 64;
constexpr std::uint64_t buffer_count = 32;

/// A group that no other run of these tests has.
ibv_gid make_group(pid_t run) {
  const auto number = static_cast<unsigned>(run);
  return {{0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0x53, 0x56, static_cast<std::uint8_t>(number >> 24),
           static_cast<std::uint8_t>(number >> 16), static_cast<std::uint8_t>(number >> 8),
           static_cast<std::uint8_t>(number)}};
}

rig::ah_ptr path_to(const rig::device& device, const ibv_gid& gid) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = gid;
  attr.grh.sgid_index = device.gid_index;
  attr.grh.hop_limit = 64;
  return rig::ah_ptr{rig::made(ibv_create_ah(device.pd.get(), &attr), "ibv_create_ah")};
}

/// A UD queue pair whose datagrams are one word each.
class talker {
 public:
  explicit talker(const rig::device& device) : device_{device} {
    qp_ = rig::make_qp(device, send_cq_.get(), receive_cq_.get(), options_);
    rig::to_init(qp_.get(), options_);
    for (std::uint64_t n = 0; n < buffer_count; ++n) listen(n);
    rig::connect(qp_.get(), device, {}, options_);
  }
  void say(std::uint64_t word, ibv_ah* to, std::uint32_t qpn = everybody) {
    word_ = word;
    rig::request r{IBV_WR_SEND, 0, rig::piece(word_mr_.get(), &word_, sizeof word_)};
    r.wr.wr.ud = {to, qpn, rig::qkey};
    rig::check(r.post(qp_.get()), "ibv_post_send");
    rig::wait_success(send_cq_.get());
  }
  std::uint64_t hear() {
    const ibv_wc wc = rig::wait_success(receive_cq_.get());
    std::uint64_t word = 0;
    if (wc.byte_len != grh_bytes + sizeof word) throw std::runtime_error{"length"};
    std::memcpy(&word, &memory_[wc.wr_id * buffer_bytes + grh_bytes], sizeof word);
    listen(wc.wr_id);
    return word;
  }
  /// Checks that this word, which only `this` can hear, comes first.
  void hears_only(std::uint64_t word) {
    say(word, path_to(device_, device_.gid).get(), qp_->qp_num);
    rig::expect(hear() == word, "a word for others");
  }
  [[nodiscard]] ibv_qp* qp() const { return qp_.get(); }

 private:
  void listen(std::uint64_t n) {
    rig::post_recv(qp_.get(), n, rig::piece(mr_.get(), &memory_[n * buffer_bytes], buffer_bytes));
  }
  const rig::device& device_;
  rig::qp_options options_{.type = IBV_QPT_UD};
  std::vector<std::byte> memory_ = std::vector<std::byte>(buffer_count * buffer_bytes);
  std::uint64_t word_ = 0;
  rig::mr_ptr mr_ = device_.reg(memory_.data(), memory_.size());
  rig::mr_ptr word_mr_ = device_.reg(&word_, sizeof word_);
  rig::cq_ptr send_cq_ = device_.make_cq(16);
  rig::cq_ptr receive_cq_ = device_.make_cq(64);
  rig::qp_ptr qp_;
};

enum class deed : std::uint32_t { attach, detach, hear, introduce };
struct order {
  deed what{};
  ibv_gid group{};
};
struct answer {
  std::uint64_t word = 0;
  rig::card card{};
};

answer obey(talker& self, const rig::device& device, const order& o) {
  switch (o.what) {
    case deed::attach: rig::check(ibv_attach_mcast(self.qp(), &o.group, 0), "attach"); break;
    case deed::detach: rig::check(ibv_detach_mcast(self.qp(), &o.group, 0), "detach"); break;
    case deed::hear: return {self.hear(), {}};
    case deed::introduce: return {0, {self.qp()->qp_num, 0, 0, device.gid, 0}};
  }
  return {};
}

int member(const std::vector<std::string>& arguments) {
  rig::enter_host(arguments.at(0));
  const rig::device device{arguments.at(1).c_str()};
  talker self{device};
  const int control = rig::first_inherited_fd;
  for (;;) rig::put(control, obey(self, device, rig::get<order>(control)));  // Until it is killed.
}
const rig::role member_role{"multicast-member", member};

answer ask(int control, deed what, const ibv_gid& group = {}) {
  rig::put(control, order{what, group});
  return rig::get<answer>(control);
}

/// Sends the word until the member has heard it: a datagram may be lost. Words go up: an earlier
/// one that was sent too often may come first.
void say_until_heard(talker& self, ibv_ah* to, std::uint64_t word, int control) {
  constexpr int patience_ms = 50;
  pollfd heard{control, POLLIN, 0};
  for (std::uint64_t last = 0; last < word;) {
    rig::put(control, order{deed::hear, {}});
    do self.say(word, to);
    while (::poll(&heard, 1, patience_ms) == 0);
    last = rig::get<answer>(control).word;
    rig::expect(last <= word, "the word of a far member");
  }
}

void members_come_and_go(talker& self, const rig::device& device, const ibv_gid& group, int one,
                         int two) {
  const rig::ah_ptr to = path_to(device, group);
  self.say(1, to.get());  // The group has no member yet.
  ask(one, deed::attach, group);
  self.say(2, to.get());
  ask(two, deed::attach, group);
  talker neighbour{device};
  rig::check(ibv_attach_mcast(neighbour.qp(), &group, 0), "attach");
  rig::check(ibv_attach_mcast(self.qp(), &group, 0), "attach");
  self.say(3, to.get());
  for (const std::uint64_t word : std::to_array<std::uint64_t>({2, 3}))
    rig::expect(ask(one, deed::hear).word == word, "the first member's word");
  rig::expect(ask(two, deed::hear).word == 3, "the second member's word");
  rig::expect(neighbour.hear() == 3, "the word of another queue pair of the sender's process");
  self.hears_only(4);

  ask(one, deed::detach, group);
  self.say(5, to.get());
  const rig::card single = ask(one, deed::introduce).card;
  self.say(6, path_to(device, single.gid).get(), single.qpn);
  rig::expect(ask(one, deed::hear).word == 6, "a word to who has left");
  rig::expect(ask(two, deed::hear).word == 5, "the word to who has stayed");
  rig::check(ibv_detach_mcast(neighbour.qp(), &group, 0), "detach");
  rig::check(ibv_detach_mcast(self.qp(), &group, 0), "detach");
}

/// The first member is of this host, the second of another.
void members_of_two_hosts(talker& self, const rig::device& device, const ibv_gid& group, int near,
                          int far) {
  const rig::ah_ptr to = path_to(device, group);
  ask(near, deed::attach, group);
  self.say(1, to.get());
  rig::expect(ask(near, deed::hear).word == 1, "the near member's word");
  ask(far, deed::attach, group);
  say_until_heard(self, to.get(), 2, far);
  rig::expect(ask(near, deed::hear).word == 2, "the near member's second word");
  // A sender that comes later asks who is there.
  talker late{device};
  ibv_gid another = group;
  another.raw[2] = 1;
  ask(far, deed::attach, another);
  say_until_heard(late, path_to(device, another).get(), 3, far);
}

/// An announcement as bytes: magic, version, kind, slot, count, and the group.
std::vector<std::byte> make_announcement(std::uint16_t slot, const ibv_gid& group) {
  struct {
    char magic[8] = {'l', 't', 'i', 'c', 'a', 's', 't', 's'};
    std::uint8_t version = 1;
    std::uint8_t kind = 1;
    std::uint16_t slot = 0;
    std::uint16_t count = 1;
    std::uint16_t reserved = 0;
    ibv_gid group{};
  } words;
  words.slot = slot;
  words.group = group;
  const auto* const first = reinterpret_cast<const std::byte*>(&words);
  return {first, first + sizeof words};
}

/// Sends datagrams to where hosts announce their groups.
class announcer {
 public:
  announcer() {
    const ip_mreqn on{{}, {}, static_cast<int>(::if_nametoindex("veth0"))};
    rig::check(::setsockopt(socket_.get(), IPPROTO_IP, IP_MULTICAST_IF, &on, sizeof on),
               "IP_MULTICAST_IF");
    rig::check(::inet_pton(AF_INET, "239.255.118.115", &to_.sin_addr) - 1, "inet_pton");
  }
  void send(const std::vector<std::byte>& bytes) {
    const ssize_t sent = ::sendto(socket_.get(), bytes.data(), bytes.size(), 0,
                                  reinterpret_cast<const sockaddr*>(&to_), sizeof to_);
    rig::expect(sent == static_cast<ssize_t>(bytes.size()), "sendto");
  }

 private:
  rig::descriptor socket_{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  sockaddr_in to_{.sin_family = AF_INET, .sin_port = htons(48024), .sin_addr = {}, .sin_zero = {}};
};

/// Announces a slot until somebody connects to it, and then whatever comes to its mind.
int liar(const std::vector<std::string>& arguments) {
  constexpr std::uint16_t slot = 5;
  rig::enter_host(arguments.at(0));
  const ibv_gid group = make_group(std::stoi(arguments.at(1)));
  const int control = rig::first_inherited_fd;
  const rig::descriptor listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in at{
      .sin_family = AF_INET, .sin_port = htons(47000 + slot), .sin_addr = {}, .sin_zero = {}};
  rig::check(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), "bind");
  rig::check(::listen(listener.get(), 1), "listen");
  announcer to;
  constexpr int patience_ms = 20;
  pollfd connected{listener.get(), POLLIN, 0};
  do to.send(make_announcement(slot, group));
  while (::poll(&connected, 1, patience_ms) == 0);
  std::mt19937 random{1};
  for (int n = 0; n < 20000; ++n) {
    std::vector<std::byte> bytes = make_announcement(static_cast<std::uint16_t>(random()), group);
    if (n % 2 == 0) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (n % 3 == 0) bytes.resize(random() % 1200);
    to.send(bytes);
  }
  rig::put(control, 'l');
  return 0;
}
const rig::role liar_role{"multicast-liar", liar};

/// The first descriptor leads to a member of this host, the second to a liar on another.
void members_and_a_liar(talker& self, const rig::device& device, const ibv_gid& group, int near,
                        int other) {
  const rig::ah_ptr to = path_to(device, group);
  pollfd lied{other, POLLIN, 0};
  do self.say(1, to.get());
  while (::poll(&lied, 1, 1) == 0);
  rig::expect(rig::get<char>(other) == 'l', "the liar's end");
  ask(near, deed::attach, group);
  for (std::uint64_t word = 2; word < 10; ++word) {
    self.say(word, to.get());
    rig::expect(ask(near, deed::hear).word == word, "the near member's word");
  }
}

/// Drives two members, to which its descriptors lead.
int driver(const std::vector<std::string>& arguments) {
  rig::enter_host(arguments.at(0));
  const rig::device device{arguments.at(1).c_str()};
  const ibv_gid group = make_group(std::stoi(arguments.at(2)));
  talker self{device};
  const int one = rig::first_inherited_fd;
  const int two = rig::first_inherited_fd + 1;
  if (arguments.at(3) == "hosts")
    members_of_two_hosts(self, device, group, one, two);
  else if (arguments.at(3) == "liar")
    members_and_a_liar(self, device, group, one, two);
  else
    members_come_and_go(self, device, group, one, two);
  return 0;
}
const rig::role driver_role{"multicast-driver", driver};

int run_liar() {
  const rig::two_hosts hosts;
  rig::socket_pair other, near;
  const std::string run = std::to_string(::getpid());
  const std::string listen = "SOFTVERBS_LISTEN=10.99.0.1";
  const rig::child far_liar{"multicast-liar", {other.theirs.get()}, {hosts.b(), run}};
  const rig::child near_member{
      "multicast-member", {near.theirs.get()}, {hosts.a(), "10.99.0.1"}, {listen}};
  other.theirs.close();
  near.theirs.close();
  return rig::child{"multicast-driver",
                    {near.ours.get(), other.ours.get()},
                    {hosts.a(), "10.99.0.1", run, "liar"},
                    {listen}}
      .wait();
}

/// The addresses at which the two hosts listen.
struct listening {
  std::string a = "10.99.0.1";
  std::string b = "10.99.0.2";
};

int run_two_hosts(const rig::two_hosts& hosts, const std::vector<std::string>& settings,
                  const listening& at = {}) {
  rig::socket_pair far, near;
  const auto with = [&](const std::string& listen) {
    std::vector<std::string> all = settings;
    all.push_back("SOFTVERBS_LISTEN=" + listen);
    return all;
  };
  const rig::child far_member{
      "multicast-member", {far.theirs.get()}, {hosts.b(), "10.99.0.2"}, with(at.b)};
  const rig::child near_member{
      "multicast-member", {near.theirs.get()}, {hosts.a(), "10.99.0.1"}, with(at.a)};
  far.theirs.close();
  near.theirs.close();
  return rig::child{"multicast-driver",
                    {near.ours.get(), far.ours.get()},
                    {hosts.a(), "10.99.0.1", std::to_string(::getpid()), "hosts"},
                    with(at.a)}
      .wait();
}

/// Gives both hosts an IPv6 address.
listening add_ip6(const rig::two_hosts& hosts) {
  const auto add = [](const std::string& host, const std::string& address) {
    rig::shell("nsenter --net=" + host + " ip addr add " + address + "/64 dev veth0 nodad");
    return address;
  };
  return {add(hosts.a(), "fd99::1"), add(hosts.b(), "fd99::2")};
}

// ---- fork

int child_of_fork(talker& inherited, const ibv_gid& group, int control) {
  rig::expect(ibv_attach_mcast(inherited.qp(), &group, 0) == EIO, "an inherited QP attaches");
  rig::expect(ibv_detach_mcast(inherited.qp(), &group, 0) == EIO, "an inherited QP detaches");
  const rig::device device;
  talker own{device};
  ibv_gid another = group;
  another.raw[2] = 1;
  rig::check(ibv_attach_mcast(own.qp(), &another, 0), "attach");
  talker sender{device};
  sender.say(7, path_to(device, another).get());
  rig::expect(own.hear() == 7, "the child's word to itself");
  rig::put(control, 'r');
  char none;
  return static_cast<int>(::read(control, &none, 1));  // 0: the other end was closed.
}

int forker(const std::vector<std::string>& arguments) {
  const int control = rig::first_inherited_fd;
  const ibv_gid group = make_group(std::stoi(arguments.at(0)));
  const rig::device device;
  talker self{device};
  rig::check(ibv_attach_mcast(self.qp(), &group, 0), "attach");
  if (::fork() == 0) {
    try {
      ::_exit(child_of_fork(self, group, control));
    } catch (const std::exception& error) {
      ::dprintf(2, "child of fork: %s\n", error.what());
      ::_exit(1);
    }
  }
  for (;;) ::pause();  // Until it is killed.
}
const rig::role forker_role{"multicast-forker", forker};

bool has_member(const ibv_gid& group) {
  std::string text;
  for (const std::uint8_t byte : group.raw) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", unsigned{byte});
    text += digits;
  }
  std::ifstream names{"/proc/net/unix"};
  for (std::string line; std::getline(names, line);)
    if (line.find(text) != line.npos) return true;
  return false;
}

}  // namespace

TEST_CASE("processes of one host are members of a group while they are attached", "[campaign]") {
  for (const char* link : {"SOFTVERBS_LINK=", "SOFTVERBS_LINK=tcp"}) {
    rig::socket_pair first, second;
    const rig::child one{"multicast-member", {first.theirs.get()}, {"", "127.0.0.1"}, {link}};
    const rig::child two{"multicast-member", {second.theirs.get()}, {"", "127.0.0.1"}, {link}};
    first.theirs.close();
    second.theirs.close();
    CHECK(rig::child{"multicast-driver",
                     {first.ours.get(), second.ours.get()},
                     {"", "127.0.0.1", std::to_string(::getpid()), "one host"},
                     {link}}
              .wait() == 0);
  }
}

TEST_CASE("processes of two hosts find each other by IP multicast", "[campaign]") {
  if (!rig::can_make_hosts()) return;
  CHECK(run_two_hosts(rig::two_hosts{}, {}) == 0);
}

TEST_CASE("processes of two hosts find each other by IP multicast on all interfaces",
          "[campaign]") {
  if (!rig::can_make_hosts()) return;
  CHECK(run_two_hosts(rig::two_hosts{}, {}, {"0.0.0.0", "0.0.0.0"}) == 0);
}

TEST_CASE("processes of two hosts find each other by a list of hosts", "[campaign]") {
  if (!rig::can_make_hosts()) return;
  CHECK(run_two_hosts(rig::two_hosts{}, {"SOFTVERBS_PEERS=10.99.0.1,10.99.0.2"}) == 0);
}

TEST_CASE("processes of two hosts find each other by IPv6", "[campaign]") {
  if (!rig::can_make_hosts()) return;
  if (!std::ifstream{"/proc/net/if_inet6"}.good()) return soak::skip("no IPv6 here");
  const rig::two_hosts hosts;
  const listening at = add_ip6(hosts);
  CHECK(run_two_hosts(hosts, {}, at) == 0);
  CHECK(run_two_hosts(hosts, {}, {"::", "::"}) == 0);
  CHECK(run_two_hosts(hosts, {"SOFTVERBS_PEERS=fd99::2,fd99::1"}, at) == 0);
}

TEST_CASE("a host that announces lies keeps nobody from a group", "[campaign]") {
  if (!rig::can_make_hosts()) return;
  CHECK(run_liar() == 0);
}

TEST_CASE("a child of fork does not keep its dead parent in a group", "[campaign]") {
  rig::socket_pair control;
  const ibv_gid group = make_group(::getpid());
  rig::child parent{"multicast-forker", {control.theirs.get()}, {std::to_string(::getpid())}};
  control.theirs.close();
  REQUIRE(rig::get<char>(control.ours.get()) == 'r');
  CHECK(has_member(group));
  parent.kill();
  CHECK_FALSE(has_member(group));
}

}  // namespace multicast
