#include "hosts.hpp"
#include "process.hpp"
#include "rig.hpp"
#include "soak.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <random>

// A `peer` answers; a `driver` asks, and tells what it found.

namespace {

constexpr std::size_t message_bytes_max = 128 * 1024;  // Several segments.
constexpr std::size_t grh_bytes = 40;
constexpr std::size_t buffer_bytes = message_bytes_max + 64;
constexpr std::size_t granted_bytes = message_bytes_max + 64;
constexpr std::size_t word_at = message_bytes_max;
constexpr std::uint64_t buffer_count = 4;

void fill(std::byte* at, std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  for (std::size_t i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(random());
}

bool holds(const std::byte* at, std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> expected(bytes);
  fill(expected.data(), bytes, seed);
  return std::memcmp(at, expected.data(), bytes) == 0;
}

enum class deed : std::uint32_t { connect_rc, make_ud, hear };
struct order {
  deed what{};
  rig::card card{};
  std::uint64_t bytes = 0;  ///< hear: of the message
  std::uint64_t seed = 0;
};
struct answer {
  rig::card card{};
  pid_t pid = 0;
  bool well = false;
};

/// One side's queue pair of a kind, with memory for all that is asked of it.
struct side {
  side(const rig::device& dev, ibv_qp_type type, std::uint8_t timeout = 10)
      : device{dev}, options{.type = type, .timeout = timeout, .retries = 3} {
    qp = rig::make_qp(dev, send_cq.get(), receive_cq.get(), options);
    rig::to_init(qp.get(), options);
    for (std::uint64_t i = 0; i < buffer_count; ++i) listen(i);
    fill(memory.data(), granted_bytes, 0);
    std::memset(&memory[word_at], 0, 8);
  }
  [[nodiscard]] std::byte* buffer(std::uint64_t i) {
    return &memory[granted_bytes + i * buffer_bytes];
  }
  void listen(std::uint64_t i) {
    rig::post_recv(qp.get(), i, rig::piece(mr.get(), buffer(i), buffer_bytes));
  }
  [[nodiscard]] rig::card mine() const {
    return {qp->qp_num, mr->rkey, reinterpret_cast<std::uintptr_t>(memory.data()), device.gid, 0};
  }
  bool hear(std::size_t bytes, std::uint64_t seed) {
    const ibv_wc wc = rig::wait_success(receive_cq.get());
    const std::size_t skip = options.type == IBV_QPT_UD ? grh_bytes : 0;
    const bool well = wc.byte_len == bytes + skip && holds(buffer(wc.wr_id) + skip, bytes, seed);
    listen(wc.wr_id);
    return well;
  }

  const rig::device& device;
  rig::qp_options options;
  std::vector<std::byte> memory =
      std::vector<std::byte>(granted_bytes + buffer_count * buffer_bytes);
  rig::mr_ptr mr = device.reg(memory.data(), memory.size());
  rig::cq_ptr send_cq = device.make_cq(64);
  rig::cq_ptr receive_cq = device.make_cq(64);
  rig::qp_ptr qp;
};

/// Does what orders say: in a peer, and in a driver that talks to itself.
class answerer {
 public:
  explicit answerer(const rig::device& dev) : device_{dev} {}
  answer obey(const order& o) {
    if (o.what == deed::hear) return {{}, 0, current_->hear(o.bytes, o.seed)};
    const ibv_qp_type type = o.what == deed::make_ud ? IBV_QPT_UD : IBV_QPT_RC;
    sides_.push_back(std::make_unique<side>(device_, type));
    current_ = sides_.back().get();
    rig::connect(current_->qp.get(), device_, o.card, current_->options);
    return {current_->mine(), ::getpid(), true};
  }

 private:
  const rig::device& device_;
  std::vector<std::unique_ptr<side>> sides_;
  side* current_ = nullptr;
};

int peer(const std::vector<std::string>& arguments) {
  rig::enter_host(arguments.at(0));
  const rig::device device{arguments.at(1).c_str()};
  answerer self{device};
  const int control = rig::first_inherited_fd;
  rig::put(control, 'r');
  // The child goes on until it is killed.
  for (;;) rig::put(control, self.obey(rig::get<order>(control)));
}
const rig::role peer_role{"hosts-peer", peer};

using ask_type = std::function<answer(const order&)>;

/// A connection, and what is done with it.
class conversation {
 public:
  /// The peer is told that we are at `said`.
  conversation(const rig::device& dev, ask_type ask, const ibv_gid& said, std::uint8_t timeout = 10)
      : local_{dev, IBV_QPT_RC, timeout}, ask_{std::move(ask)} {
    rig::card mine = local_.mine();
    mine.gid = said;
    const answer remote = ask_({deed::connect_rc, mine});
    remote_ = remote.card;
    pid_ = remote.pid;
    rig::connect(local_.qp.get(), dev, remote_, local_.options);
  }

  /// Posts one of each; check() finds whether they did what they should.
  void post(std::uint64_t seed) {
    seed_ = seed;
    fill(source(), message_bytes_max, seed);
    const auto piece = [&](std::byte* at, std::size_t bytes) {
      return rig::piece(local_.mr.get(), at, bytes);
    };
    request({IBV_WR_RDMA_WRITE, 0, piece(source(), message_bytes_max)}, remote_.address);
    request({IBV_WR_RDMA_READ, 1, piece(sink(), message_bytes_max)}, remote_.address);
    request({IBV_WR_ATOMIC_FETCH_AND_ADD, 2, piece(sink() + word_at, 8)},
            remote_.address + word_at);
    request({IBV_WR_SEND, 3, piece(source(), message_bytes_max)}, 0);
  }
  void check() {
    for (std::uint64_t i = 0; i < 4; ++i) {
      if (rig::wait_success(local_.send_cq.get()).wr_id != i) throw std::runtime_error{"order"};
    }
    if (!holds(sink(), message_bytes_max, seed_)) throw std::runtime_error{"WRITE or READ"};
    std::uint64_t count = 0;
    std::memcpy(&count, sink() + word_at, 8);
    if (count != count_++) throw std::runtime_error{"FETCH_ADD"};
    if (!ask_({deed::hear, {}, message_bytes_max, seed_}).well) throw std::runtime_error{"SEND"};
  }

  void datagram(std::uint64_t seed) {
    constexpr std::size_t bytes = 3000;
    side local{local_.device, IBV_QPT_UD};
    rig::connect(local.qp.get(), local.device, {}, local.options);
    const rig::card remote = ask_({deed::make_ud, {}}).card;
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = remote.gid;
    attr.grh.sgid_index = local.device.gid_index;
    attr.grh.hop_limit = 64;
    const rig::ah_ptr ah{rig::made(ibv_create_ah(local.device.pd.get(), &attr), "ibv_create_ah")};
    fill(local.memory.data(), bytes, seed);
    rig::request r{IBV_WR_SEND, 0, rig::piece(local.mr.get(), local.memory.data(), bytes)};
    r.wr.wr.ud = {ah.get(), remote.qpn, rig::qkey};
    rig::check(r.post(local.qp.get()), "ibv_post_send");
    rig::wait_success(local.send_cq.get());
    if (!ask_({deed::hear, {}, bytes, seed}).well) throw std::runtime_error{"UD"};
  }

  /// The peer is gone, or the route to it is cut.
  void expect_retries_exceeded() {
    request({IBV_WR_RDMA_WRITE, 0, rig::piece(local_.mr.get(), source(), message_bytes_max)},
            remote_.address);
    const ibv_wc wc = rig::wait_one(local_.send_cq.get());
    if (wc.status != IBV_WC_RETRY_EXC_ERR) throw std::runtime_error{ibv_wc_status_str(wc.status)};
  }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] const ask_type& ask() const noexcept { return ask_; }

 private:
  std::byte* source() { return local_.memory.data(); }
  std::byte* sink() { return local_.buffer(0); }  // The peers send nothing here.
  void request(rig::request r, std::uint64_t address) {
    if (r.wr.opcode != IBV_WR_SEND) r.to(address, remote_.rkey).operands(1);
    rig::check(r.post(local_.qp.get()), "ibv_post_send");
  }

  side local_;
  ask_type ask_;
  rig::card remote_{};
  pid_t pid_ = 0;
  std::uint64_t seed_ = 0;
  std::uint64_t count_ = 0;
};

/// Sends frames of both directions to a neighbour that does not exist: no host is notified. A queue
/// pair without a timeout continues when the cable is whole again.
void cut_and_heal(conversation& hasty, const rig::device& device, const std::string& other_host) {
  constexpr std::uint8_t never = 0;
  conversation patient{device, hasty.ask(), device.gid, never};
  patient.post(1);
  patient.check();
  const std::string astray = " lladdr 02:00:00:00:00:99 dev veth0 nud permanent";
  rig::shell("ip neigh replace 10.99.0.2" + astray);
  const std::string over_there = "nsenter --net=" + other_host + " ip neigh ";
  rig::shell(over_there + "replace 10.99.0.1" + astray);
  patient.post(2);
  hasty.expect_retries_exceeded();
  rig::shell("ip neigh del 10.99.0.2 dev veth0");
  rig::shell(over_there + "del 10.99.0.1 dev veth0");
  patient.check();
}

/// The driver of the peers at its inherited descriptors; `end` names the fate of the last peer.
int driver(const std::vector<std::string>& arguments) {
  rig::enter_host(arguments.at(0));
  const rig::device device{arguments.at(1).c_str()};
  const int peers = std::stoi(arguments.at(2));
  const std::string& end = arguments.at(3);
  answerer self{device};
  std::vector<std::unique_ptr<conversation>> talks;
  const auto talk_to = [&](ask_type ask) {
    talks.push_back(std::make_unique<conversation>(device, std::move(ask), device.gid));
  };
  talk_to([&](const order& o) { return self.obey(o); });
  for (int i = 0; i < peers; ++i) {
    const int fd = rig::first_inherited_fd + i;
    rig::get<char>(fd);
    talk_to([fd](const order& o) {
      rig::put(fd, o);
      return rig::get<answer>(fd);
    });
  }
  for (std::uint64_t round = 1; round <= 20; ++round) {
    for (auto& t : talks) t->post(round);  // The exchanges run at the same time.
    for (auto& t : talks) t->check();
  }
  for (auto& t : talks) t->datagram(77);
  conversation& last = *talks.back();
  if (end == "kill") {
    ::kill(last.pid(), SIGKILL);
    last.expect_retries_exceeded();
  } else if (end == "down") {
    rig::shell("ip link set veth0 down");
    last.expect_retries_exceeded();
  } else if (end == "impostor") {
    ibv_gid another = device.gid;
    another.raw[15] = 99;  // No host has this GID.
    conversation{device, last.ask(), another}.expect_retries_exceeded();
  } else if (end == "cut") {
    cut_and_heal(last, device, arguments.at(4));
  }
  return 0;
}
const rig::role driver_role{"hosts-driver", driver};

int two_host_run(const std::string& end) {
  const rig::two_hosts hosts;
  rig::socket_pair far, near;
  const std::string ours = "SOFTVERBS_LISTEN=10.99.0.1";
  const rig::child far_peer{
      "hosts-peer", {far.theirs.get()}, {hosts.b(), "10.99.0.2"}, {"SOFTVERBS_LISTEN=10.99.0.2"}};
  const rig::child near_peer{"hosts-peer", {near.theirs.get()}, {hosts.a(), "10.99.0.1"}, {ours}};
  far.theirs.close();
  near.theirs.close();
  return rig::child{"hosts-driver",
                    {near.ours.get(), far.ours.get()},
                    {hosts.a(), "10.99.0.1", "2", end, hosts.b()},
                    {ours}}
      .wait();
}

}  // namespace

TEST_CASE("one process talks to itself, to its host and to another host at the same time",
          "[campaign]") {
  if (!rig::can_make_hosts()) return;
  CHECK(two_host_run("well") == 0);
}

TEST_CASE("a process killed on another host ends its peer's requests with RETRY_EXC",
          "[campaign]") {
  if (!rig::can_make_hosts()) return;
  CHECK(two_host_run("kill") == 0);
}

TEST_CASE("a cable that is pulled ends requests to the other host with RETRY_EXC", "[campaign]") {
  if (!rig::can_make_hosts()) return;
  CHECK(two_host_run("down") == 0);
}

TEST_CASE(
    "a cable that is cut ends a queue pair by its own timers, and nobody who has more patience",
    "[campaign]") {
  if (!rig::can_make_hosts()) return;
  CHECK(two_host_run("cut") == 0);
}

TEST_CASE("a host cannot speak for a queue pair that its peer knows at another address",
          "[campaign]") {
  if (!rig::can_make_hosts()) return;
  CHECK(two_host_run("impostor") == 0);
}

TEST_CASE("two processes of one host can talk by TCP", "[campaign]") {
  rig::socket_pair control;
  const std::vector<std::string> by_tcp{"SOFTVERBS_LINK=tcp"};
  const rig::child other{"hosts-peer", {control.theirs.get()}, {"", "127.0.0.1"}, by_tcp};
  control.theirs.close();
  CHECK(rig::child{"hosts-driver", {control.ours.get()}, {"", "127.0.0.1", "1", "kill"}, by_tcp}
            .wait() == 0);
}
