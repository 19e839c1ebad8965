#include "hosts.hpp"
#include "process.hpp"
#include "rig.hpp"

#include <catch2/catch.hpp>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>

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
  /// Nothing came before this word, which only `this` can hear.
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

/// Says the word until the member has heard it: a datagram may be lost.
void say_until_heard(talker& self, ibv_ah* to, std::uint64_t word, int control) {
  constexpr int patience_ms = 50;
  rig::put(control, order{deed::hear, {}});
  pollfd heard{control, POLLIN, 0};
  do self.say(word, to);
  while (::poll(&heard, 1, patience_ms) == 0);
  rig::expect(rig::get<answer>(control).word == word, "the word of a far member");
}

void members_come_and_go(talker& self, const rig::device& device, const ibv_gid& group, int one,
                         int two) {
  const rig::ah_ptr to = path_to(device, group);
  self.say(1, to.get());  // Nobody is there.
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
  const rig::card alone = ask(one, deed::introduce).card;
  self.say(6, path_to(device, alone.gid).get(), alone.qpn);
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

/// Its descriptors lead to two members.
int driver(const std::vector<std::string>& arguments) {
  rig::enter_host(arguments.at(0));
  const rig::device device{arguments.at(1).c_str()};
  const ibv_gid group = make_group(std::stoi(arguments.at(2)));
  talker self{device};
  const int one = rig::first_inherited_fd;
  const int two = rig::first_inherited_fd + 1;
  if (arguments.at(3) == "hosts")
    members_of_two_hosts(self, device, group, one, two);
  else
    members_come_and_go(self, device, group, one, two);
  return 0;
}
const rig::role driver_role{"multicast-driver", driver};

int run_two_hosts(const std::vector<std::string>& settings) {
  const rig::two_hosts hosts;
  rig::socket_pair far, near;
  const auto with = [&](const char* listen) {
    std::vector<std::string> all = settings;
    all.push_back(std::string{"SOFTVERBS_LISTEN="} + listen);
    return all;
  };
  const rig::child far_member{
      "multicast-member", {far.theirs.get()}, {hosts.b(), "10.99.0.2"}, with("10.99.0.2")};
  const rig::child near_member{
      "multicast-member", {near.theirs.get()}, {hosts.a(), "10.99.0.1"}, with("10.99.0.1")};
  far.theirs.close();
  near.theirs.close();
  return rig::child{"multicast-driver",
                    {near.ours.get(), far.ours.get()},
                    {hosts.a(), "10.99.0.1", std::to_string(::getpid()), "hosts"},
                    with("10.99.0.1")}
      .wait();
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
  CHECK(run_two_hosts({}) == 0);
}

TEST_CASE("processes of two hosts find each other by a list of hosts", "[campaign]") {
  if (!rig::can_make_hosts()) return;
  CHECK(run_two_hosts({"SOFTVERBS_PEERS=10.99.0.1,10.99.0.2"}) == 0);
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
