#include "other_process.hpp"

#include "allocations.hpp"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace bench {
namespace {

constexpr int control_fd = rig::first_inherited_fd;
constexpr int tcp_fd = control_fd + 1;
constexpr int lines_fd = control_fd + 2;
constexpr std::uint32_t message_bytes_max = 4096;
constexpr std::uint32_t signal_every = 16;

spin_lines* map_lines(int fd) {
  void* const at = ::mmap(nullptr, sizeof(spin_lines), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) rig::fail("mmap", errno);
  return static_cast<spin_lines*>(at);
}

/// Two threads that poll for each other on one processor meet once in a time slice. The engines,
/// which were made before, go where they like.
void stay_on_processor(std::size_t number) {
  cpu_set_t allowed;
  rig::check(::sched_getaffinity(0, sizeof allowed, &allowed), "sched_getaffinity");
  if (CPU_COUNT(&allowed) < 2) return;
  for (std::size_t cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || seen++ != number) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    rig::check(::sched_setaffinity(0, sizeof one, &one), "sched_setaffinity");
  }
}

struct tcp_pair {
  rig::descriptor ours, theirs;
  tcp_pair() {
    const rig::descriptor listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    auto* const name = reinterpret_cast<sockaddr*>(&at);
    rig::check(::bind(listener.get(), name, size), "bind");
    rig::check(::listen(listener.get(), 1), "listen");
    rig::check(::getsockname(listener.get(), name, &size), "getsockname");
    ours = rig::descriptor{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    rig::check(::connect(ours.get(), name, size), "connect");
    theirs = rig::descriptor{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    for (const int fd : {ours.get(), theirs.get()}) {
      const int on = 1;
      rig::check(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
    }
  }
};

int run_other(const std::vector<std::string>&) {
  spin_lines& lines = *map_lines(lines_fd);
  stay_on_processor(1);  // The engine's thread stays there, too.
  endpoint local;
  rig::put(control_fd, local.mine());
  local.connect(rig::get<rig::card>(control_fd));
  std::vector<std::byte> bytes(message_bytes_max);
  for (;;) {
    const order o = rig::get<order>(control_fd);
    const std::uint64_t allocated = allocation_count();
    if (o.does == task::receive) {
      local.receive_many(o.n);
    } else if (o.does == task::bare) {
      const std::uint64_t start = lines.pong.load();
      for (std::uint64_t i = start + 1; i <= start + o.n; ++i) {
        while (lines.ping.load(std::memory_order_acquire) != i) {
        }
        lines.pong.store(i, std::memory_order_release);
      }
    } else if (o.does == task::tcp) {
      for (std::uint64_t i = 0; i < o.n; ++i) {
        rig::read_bytes(tcp_fd, bytes.data(), o.bytes);
        rig::write_bytes(tcp_fd, bytes.data(), o.bytes);
      }
    } else {
      const bool events = o.does == task::echo_events;
      for (std::uint64_t i = 0; i < o.n; ++i) {
        local.receive(events);
        local.send(o.bytes);
      }
    }
    rig::put(control_fd, allocation_count() - allocated);
  }
}
const rig::role other_role{"bench-other", run_other};

}  // namespace

endpoint::endpoint()
    : memory(large_bytes * large_count),
      mr_{device.reg(memory.data(), memory.size())},
      channel_{rig::made(ibv_create_comp_channel(device.context.get()), "ibv_create_comp_channel")},
      send_cq_{device.make_cq(2 * depth)},
      receive_cq_{device.make_cq(2 * depth, channel_.get())},
      qp_{rig::make_qp(device, send_cq_.get(), receive_cq_.get(),
                       {.sends = 2 * depth, .receives = 2 * depth})} {
  rig::to_init(qp_.get());
  for (std::uint64_t i = 0; i < 2 * depth; ++i) {
    rig::post_recv(qp_.get(), i, rig::piece(mr_.get(), memory.data(), message_bytes_max));
  }
}

rig::card endpoint::mine() const {
  return {qp_->qp_num, mr_->rkey, reinterpret_cast<std::uintptr_t>(memory.data()), device.gid};
}

void endpoint::connect(const rig::card& peer) {
  peer_ = peer;
  rig::connect(qp_.get(), device, peer);
}

void endpoint::send(std::uint32_t bytes) {
  ++sent_;
  const bool signaled = sent_ % signal_every == 0;
  unsigned flags = 0;
  if (bytes <= rig::qp_options{}.inline_bytes) flags |= IBV_SEND_INLINE;
  if (signaled) flags |= IBV_SEND_SIGNALED;
  rig::request r{IBV_WR_SEND, sent_, rig::piece(mr_.get(), &memory[large_bytes], bytes), flags};
  rig::check(r.post(qp_.get()), "ibv_post_send");
  if (signaled) ++outstanding_;
  // One signal behind, so that nobody waits for the acknowledgement.
  while (outstanding_ > 1) {
    rig::wait_success(send_cq_.get());
    --outstanding_;
  }
}

void endpoint::receive(bool events) {
  ibv_cq* const cq = receive_cq_.get();
  ibv_wc wc{};
  while (events && ibv_poll_cq(cq, 1, &wc) == 0) {
    rig::check(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
    if (ibv_poll_cq(cq, 1, &wc) == 1) break;
    ibv_cq* woken = nullptr;
    void* context = nullptr;
    rig::check(ibv_get_cq_event(channel_.get(), &woken, &context), "ibv_get_cq_event");
    ibv_ack_cq_events(woken, 1);
  }
  if (!events) wc = rig::wait_success(cq);
  if (wc.status != IBV_WC_SUCCESS) throw std::runtime_error{ibv_wc_status_str(wc.status)};
  rig::post_recv(qp_.get(), wc.wr_id, rig::piece(mr_.get(), memory.data(), message_bytes_max));
}

void endpoint::receive_many(std::uint64_t n) {
  ibv_wc entries[depth];
  while (n > 0) {
    const int found = ibv_poll_cq(receive_cq_.get(), depth, entries);
    if (found < 0) rig::fail("ibv_poll_cq", EIO);
    for (int i = 0; i < found; ++i) {
      if (entries[i].status != IBV_WC_SUCCESS) rig::fail("a receive", EIO);
      rig::post_recv(qp_.get(), entries[i].wr_id,
                     rig::piece(mr_.get(), memory.data(), message_bytes_max));
    }
    n -= static_cast<std::uint64_t>(found);
  }
}

void endpoint::send_many(std::uint32_t bytes, std::uint64_t n) {
  std::uint64_t open = 0;
  for (std::uint64_t posted = 0; posted < n || open > 0;) {
    while (posted < n && open < depth) {
      rig::request r{IBV_WR_SEND, posted, rig::piece(mr_.get(), &memory[large_bytes], bytes),
                     IBV_SEND_SIGNALED | IBV_SEND_INLINE};
      rig::check(r.post(qp_.get()), "ibv_post_send");
      ++posted;
      ++open;
    }
    ibv_wc entries[depth];
    const int found = ibv_poll_cq(send_cq_.get(), depth, entries);
    for (int i = 0; i < found; ++i) {
      if (entries[i].status != IBV_WC_SUCCESS) rig::fail("a send", EIO);
    }
    open -= static_cast<std::uint64_t>(std::max(found, 0));
  }
}

void endpoint::write(std::size_t bytes, std::uint64_t n, std::uint32_t window) {
  // CQEs that pings left unreaped would be taken for those of the WRITEs below.
  while (outstanding_ > 0) {
    rig::wait_success(send_cq_.get());
    --outstanding_;
  }
  std::uint64_t open = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::size_t at = bytes < large_bytes ? 0 : i % large_count * large_bytes;
    rig::request r{IBV_WR_RDMA_WRITE, i, rig::piece(mr_.get(), &memory[at], bytes)};
    rig::check(r.to(peer_.address + at, peer_.rkey).post(qp_.get()), "ibv_post_send");
    if (++open == window) {
      rig::wait_success(send_cq_.get());
      --open;
    }
  }
  for (; open > 0; --open) rig::wait_success(send_cq_.get());
}

other_process::other_process() {
  rig::socket_pair control;
  tcp_pair tcp;
  const rig::descriptor shared{::memfd_create("bench", MFD_CLOEXEC)};
  rig::check(::ftruncate(shared.get(), sizeof(spin_lines)), "ftruncate");
  lines_ = map_lines(shared.get());
  process_ = rig::child{"bench-other", {control.theirs.get(), tcp.theirs.get(), shared.get()}};
  control_ = std::move(control.ours);
  tcp_ = std::move(tcp.ours);
  control.theirs.close();
  local_.connect(rig::get<rig::card>(control_.get()));
  rig::put(control_.get(), local_.mine());
  stay_on_processor(0);  // From now on: the child inherits nothing of it.
}

other_process::~other_process() { ::munmap(lines_, sizeof *lines_); }

void other_process::bare(std::uint64_t n) {
  start({task::bare, 0, n});
  const std::uint64_t first = lines_->ping.load();
  for (std::uint64_t i = first + 1; i <= first + n; ++i) {
    lines_->ping.store(i, std::memory_order_release);
    while (lines_->pong.load(std::memory_order_acquire) != i) {
    }
  }
  finish();
}

void other_process::tcp(std::uint32_t bytes, std::uint64_t n) {
  std::array<std::byte, message_bytes_max> buffer{};
  start({task::tcp, bytes, n});
  for (std::uint64_t i = 0; i < n; ++i) {
    rig::write_bytes(tcp_.get(), buffer.data(), bytes);
    rig::read_bytes(tcp_.get(), buffer.data(), bytes);
  }
  finish();
}

}  // namespace bench
